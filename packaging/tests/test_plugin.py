"""The pytest plugin, as a user has it: from the wheel alone."""

import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import opensrd
import pytest
from opensrd import NotUsable, hosts as module
from opensrd.hosts import Failed, Hosts

pytest_plugins = ["pytester"]

PORT = 47592

if not hasattr(pytest, "Pytester"):

    @pytest.fixture
    def pytester():
        pytest.skip("pytest before 6.2 has none")


def exchange(hosts, rounds=20):
    """fi_pingpong between the first and the last host."""
    command = f"fi_pingpong -p efa -e rdm -I {rounds}"
    server = hosts[0].popen(command)
    hosts[0].wait_for_port(PORT)
    hosts[-1].run(f"{command} {hosts[0].address}")
    assert server.wait() == 0


@pytest.mark.parametrize("kind", ["lab", "addresses"])
def test_messages_arrive_whatever_hosts_are(kind):
    try:
        hosts = Hosts(3, loss=0.02, dead_path=True, seed=6, kind=kind)
    except NotUsable as error:
        pytest.skip(f"no lab: {error}")
    with hosts:
        assert len({host.address for host in hosts}) == 3
        exchange(hosts)
        sent, idle, received = (host.counters() for host in hosts)
    assert idle["device"] == {}, "it ran no program"
    for counters in (sent, received):
        assert counters["device"]["tx_pkts"] > 100
        faults = counters["transmit"]["faults"]
        assert faults["lost"] > 0 and faults["blackholed"] > 0


def test_nothing_is_lost_without_faults():
    with Hosts(2) as hosts:
        exchange(hosts)
        counters = hosts[0].counters()
    assert counters["device"]["tx_pkts"] > 100
    assert counters["transmit"]["faults"] == {"lost": 0, "blackholed": 0, "duplicated": 0, "reordered": 0, "corrupted": 0}


def test_ten_hosts_come_up(capsys):
    began = time.monotonic()
    with Hosts(10) as hosts:
        up = time.monotonic() - began
        shown = [host.run(["sh", "-c", "echo $SRD_ADDR"]).stdout.strip() for host in hosts]
    with capsys.disabled():
        print(f" [10 hosts up in {up:.2f} s: {hosts.ground.description}]", end="")
    assert shown == [host.address for host in hosts]


def test_a_seed_says_what_is_lost():
    def faults(seed):
        with Hosts(2, loss=0.1, dead_path=True, seed=seed, kind="addresses") as hosts:
            return [host.environment()["SRD_FAULT"] for host in hosts]

    assert faults(3) == faults(3)
    assert faults(3) != faults(4)
    assert len(set(faults(3))) == 2


def test_who_fails_or_hangs_is_named_with_its_output():
    with Hosts(1, kind="addresses") as hosts:
        with pytest.raises(Failed, match=r"host0: sh -c .*: exit status 3\nhelp"):
            hosts[0].run(["sh", "-c", "echo help >&2; exit 3"])
        began = time.monotonic()
        with pytest.raises(Failed, match="still running after 0.5 s\nhere"):
            hosts[0].run(["sh", "-c", "echo here; sleep 100 & wait"], timeout=0.5)
        assert time.monotonic() - began < 50
        hosts[0].popen(["sh", "-c", "echo gone; exit 4"])
        with pytest.raises(Failed, match="nobody listens on TCP port 1\nsh .*: exit status 4\ngone"):
            hosts[0].wait_for_port(1)
        assert hosts[0].run(["/no/such/program"], check=False).returncode == 127
        with pytest.raises(Failed, match="which program?"):
            hosts[0].run("")
        assert "srd" in hosts[0].run(["srd", "--version"]).stdout


def test_programs_end_with_their_hosts():
    with Hosts(1) as hosts:
        process = hosts[0].popen(["sh", "-c", "trap '' TERM; sleep 1000 & echo $!; wait; sleep 1000"])
        while not process.output().strip():
            time.sleep(0.01)
        child, directory = Path("/proc", process.output().strip()), hosts.directory
        assert child.exists()
    assert process.poll() is not None and not directory.exists()
    # Whoever inherits it may not have asked for its status yet; proc(5): the state stands behind the name.
    assert not child.exists() or child.joinpath("stat").read_text().rpartition(")")[2].split()[0] == "Z"


@pytest.mark.parametrize(
    "given, message",
    [
        ({"count": 0}, "0 hosts: it is a number from 1 to 120"),
        ({"loss": 2}, "loss=2: it is a share"),
        ({"loss": "x"}, "loss='x': it is a share"),
        ({"dead_path": "no"}, "dead_path='no': it is True or False"),
        ({"seed": -1}, "seed=-1: it is a whole number"),
        ({"over": "tcp"}, "over='tcp': it is one of efa, provider, provider-as-efa"),
        ({"kind": "cloud"}, "kind='cloud': it is one of lab, addresses"),
    ],
)
def test_what_makes_no_sense_is_refused(given, message):
    with pytest.raises(NotUsable, match=re.escape(message)):
        Hosts(**given)


def test_without_a_command_the_message_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setattr(opensrd, "__file__", str(tmp_path / "__init__.py"))
    with pytest.raises(NotUsable, match="no srd for .*\n.*pip install"):
        Hosts(1)


def test_where_no_lab_can_be_hosts_are_addresses_and_the_report_says_why(pytester):
    pytester.makeconftest(
        """
        from opensrd import NotUsable, hosts

        class NoLab:
            def __init__(self, count):
                raise NotUsable("no user namespaces: the kernel says no")

        hosts._Lab = NoLab
        """
    )
    pytester.makepyfile(
        """
        def test_it(efa_hosts):
            hosts = efa_hosts(2)
            assert hosts.ground.kind == "addresses"
            try:
                hosts.fault("down", "leaf0-spine0")
            except Exception as error:
                assert "need a lab" in str(error)
        """
    )
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["efa_hosts: 1 tests with addresses of this machine (127.*.x); no lab: no user namespaces: the kernel says no"])
    refused = pytester.runpytest_subprocess("--efa-hosts=lab")
    refused.stdout.fnmatch_lines(["*efa_hosts: no user namespaces: the kernel says no*"])


def test_one_that_fails_says_its_seed_and_how_to_repeat_it(pytester):
    pytester.makepyfile(
        """
        def test_unlucky(efa_hosts):
            hosts = efa_hosts(2, loss=0.02)
            print("faults are", hosts[0].environment()["SRD_FAULT"])
            hosts[0].popen(["echo", "from the server"]).wait()
            assert hosts.seed < 0
        """
    )
    first = pytester.runpytest_subprocess()
    first.assert_outcomes(failed=1)
    repeat = re.search(r"repeat: pytest (--efa-seed=(\d+) --efa-hosts=\w+) (\S+)", first.stdout.str())
    first.stdout.fnmatch_lines([f"2 hosts: *, seed {repeat[2]}, 2 % of packets lost", "host0: echo 'from the server': exit status 0", "from the server"])
    again = pytester.runpytest_subprocess(*repeat[1].split(), repeat[3])
    again.assert_outcomes(failed=1)
    faults = re.compile(r"faults are (\S+)")
    assert faults.search(first.stdout.str())[1] == faults.search(again.stdout.str())[1]


def test_each_call_has_its_seed_again(pytester):
    pytester.makepyfile("def test_twice(efa_hosts): assert (efa_hosts(1).seed, efa_hosts(2).seed) == 0")
    first = pytester.runpytest_subprocess("--efa-hosts=addresses")
    seeds = re.search(r"assert \((\d+), (\d+)\) == 0", first.stdout.str())
    repeat = re.search(r"repeat: pytest --efa-seed=(\S+) ", first.stdout.str())[1]
    assert repeat == f"{seeds[1]},{seeds[2]}"
    again = pytester.runpytest_subprocess(f"--efa-seed={repeat}", "--efa-hosts=addresses")
    assert f"({seeds[1]}, {seeds[2]})" in again.stdout.str()


def test_hosts_go_when_the_run_is_ended_or_with_the_next_one_when_it_is_killed(pytester, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(pytester.path))
    monkeypatch.setattr(tempfile, "tempdir", None)  # it is looked up anew
    pytester.makepyfile(
        """
        def test_it(efa_hosts):
            hosts = efa_hosts(2)
            hosts[0].popen(["sleep", "777"])
            open("up", "w").write(str(hosts.directory))
            hosts[1].run(["sleep", "777"], timeout=1000)
        """
    )
    for number in (signal.SIGTERM, signal.SIGKILL):
        up = pytester.path / "up"
        run = subprocess.Popen([sys.executable, "-m", "pytest", "-p", "no:cacheprovider"], cwd=pytester.path, stdout=subprocess.DEVNULL)
        while not up.exists() or not up.read_text():
            assert run.poll() is None
            time.sleep(0.05)
        directory = Path(up.read_text())
        run.send_signal(number)
        run.wait()
        up.unlink()
        labs = [lab.name for lab in Path("/run/srd-lab").glob(f"efa{run.pid}x*")]
        if number == signal.SIGTERM:
            assert run.returncode == 143 and not directory.exists() and not labs
        else:
            Hosts(1).close()
            assert not directory.exists()
            assert not list(Path("/run/srd-lab").glob(f"efa{run.pid}x*"))


def test_the_seed_of_the_command_line_counts_for_more(pytester):
    pytester.makepyfile("def test_it(efa_hosts): assert efa_hosts(1, seed=7).seed == 9")
    pytester.runpytest_subprocess("--efa-seed=9").assert_outcomes(passed=1)


def test_a_lab_has_faults_of_links():
    try:
        hosts = Hosts(2, kind="lab")
    except NotUsable as error:
        pytest.skip(f"no lab: {error}")
    with hosts:
        for spine in range(4):
            hosts.fault("down", f"leaf0-spine{spine}")
        exit_status = hosts[0].run(["fi_pingpong", "-p", "efa", "-e", "rdm", hosts[1].address], check=False).returncode
        assert exit_status != 0, "there is no way to the other leaf"
        hosts.heal()
        exchange(hosts)
        with pytest.raises(NotUsable, match="srd lab fault"):
            hosts.fault("nonsense")
