"""`python -m opensrd.cdi >/etc/cdi/opensrd.json`: what container runtimes read, with this package's files
(`podman run --device opensrd.org/efa=all ...`)."""

from pathlib import Path

from opensrd import command

if __name__ == "__main__":
    here = command().parents[1]
    print(Path(__file__).with_suffix(".json").read_text().replace("@PREFIX@", str(here)), end="")
