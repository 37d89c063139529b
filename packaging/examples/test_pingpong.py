"""A test of one's own: two hosts exchange messages through libfabric's efa provider while the network is bad.

    pip install opensrd pytest; apt-get install libfabric-bin
    pytest packaging/examples/test_pingpong.py
"""

import pytest

# Where fi_pingpong's server waits for its client.
PORT = 47592


@pytest.mark.parametrize("faults", [{}, {"loss": 0.02}, {"dead_path": True}], ids=["clean", "loss", "dead path"])
def test_pingpong(efa_hosts, faults):
    hosts = efa_hosts(2, seed=7, **faults)
    server = hosts[0].popen("fi_pingpong -p efa -e rdm -I 20")
    hosts[0].wait_for_port(PORT)
    hosts[1].run(f"fi_pingpong -p efa -e rdm -I 20 {hosts[0].address}")
    assert server.wait() == 0
    for host in hosts:
        counters = host.counters()
        assert counters["device"]["tx_pkts"] > 100, "messages went another way than over EFA"
        assert ("loss" in faults) == (counters["transmit"]["faults"]["lost"] > 0)
