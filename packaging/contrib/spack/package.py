# Not run here. A repository of packages takes it under the name opensrd: spack install opensrd

from spack.package import *


class Opensrd(Package):
    """Scalable Reliable Datagram and a software Elastic Fabric Adapter (EFA)."""

    # Where the source is published: set it before the first use.
    git = "https://example.org/opensrd.git"

    license("MIT OR Apache-2.0")

    version("main", branch="main")

    depends_on("c", type="build")
    depends_on("rust@1.88:", type="build")
    depends_on("llvm +clang", type="build")  # the lab's BPF programs
    depends_on("binutils", type="build")
    depends_on("rdma-core", type="build")  # headers, for the tests
    depends_on("iproute2", type="run")  # srd lab

    def install(self, spec, prefix):
        bash = which("bash")
        bash("scripts/build.sh")
        bash("scripts/install.sh", prefix)
