"""Fixture `efa_hosts`: hosts for a test, with faults by seed.

    def test_transfer(efa_hosts):
        hosts = efa_hosts(2, loss=0.02, dead_path=True, seed=7)
        hosts[0].run(["ibv_devinfo"])

`--efa-seed=N` takes the place of the seeds that tests name (`N,N` those of a test that calls `efa_hosts` twice); a test that names none
has another one in each run. A test that fails says its seeds, and the command that repeats it.
"""

import random
import shlex
import signal
import threading

import pytest

from opensrd import NotUsable
from opensrd.hosts import KINDS, Hosts


def seeds(text):
    return [int(seed) for seed in text.split(",")]


def pytest_addoption(parser):
    group = parser.getgroup("opensrd", "hosts with a software EFA (opensrd)")
    group.addoption("--efa-seed", type=seeds, metavar="N,...", help="seeds of the faults of efa_hosts, call for call, instead of those that tests name")
    group.addoption("--efa-hosts", choices=KINDS, help="what hosts are: namespaces of a lab, or addresses of this machine (default: a lab if that can be)")


def pytest_configure(config):
    config.opensrd_used = {}
    # CI ends a job that takes too long by SIGTERM. Hosts shall go then, too, as fixtures do.
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda *_: pytest.exit("ended by SIGTERM", 128 + signal.SIGTERM))


@pytest.fixture
def efa_hosts(request):
    """Call it for hosts: `efa_hosts(count=2, *, loss=0.0, dead_path=False, seed=None, over="efa")`. They go with the test."""
    made = request.node.opensrd_hosts = []
    config = request.config

    def make(count=2, *, loss=0.0, dead_path=False, seed=None, over="efa"):
        given = config.getoption("--efa-seed")
        # Who calls more often than there are seeds gets the last one again.
        seed = given[min(len(made), len(given) - 1)] if given else seed if seed is not None else random.SystemRandom().randrange(1 << 20)
        try:
            hosts = Hosts(count, loss=loss, dead_path=dead_path, seed=seed, over=over, kind=config.getoption("--efa-hosts"))
        except NotUsable as error:
            pytest.fail(f"efa_hosts: {error}", pytrace=False)
        made.append(hosts)
        request.node.user_properties.append(("efa_hosts", hosts.describe()))
        config.opensrd_used.setdefault((hosts.ground.description, hosts.why_not_lab), set()).add(request.node.nodeid)
        return hosts

    yield make
    for hosts in made:
        hosts.close()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    made = getattr(item, "opensrd_hosts", None)
    if not (report.failed and call.when == "call" and made):
        return
    hosts, seeds = made[-1], ",".join(str(made.seed) for made in made)
    lines = [made.describe() for made in made]
    lines.append(f"repeat: pytest --efa-seed={seeds} --efa-hosts={hosts.ground.kind} {shlex.quote(item.nodeid)}")
    for host in hosts:
        counted = host.counters()
        sent, lost = counted["device"].get("tx_pkts", 0), counted["transmit"].get("faults", {})
        lines.append(f"{host.name} ({host.address}): {sent} packets sent, {lost.get('lost', 0)} of them lost, {lost.get('blackholed', 0)} into a dead path")
        for process in host.processes:
            lines += [f"{host.name}: {shlex.join(process.arguments)}: {'runs' if process.poll() is None else f'exit status {process.poll()}'}", process.output().rstrip()]
    report.sections.append(("efa_hosts", "\n".join(lines)))


def pytest_terminal_summary(terminalreporter, config):
    for (description, why), tests in config.opensrd_used.items():
        terminalreporter.write_line(f"efa_hosts: {len(tests)} tests with {description}" + (f"; no lab: {why}" if why else ""))
