"""Ports, counters and switches: dumps in every clothing, and what of them says something."""

import pytest

from clusterorch.telemetry.patterns import load_formats, shipped_formats
from clusterorch.telemetry.reading import read_paths

FORMATS = load_formats(shipped_formats())


def read(text, tmp_path):
    file = tmp_path / "x.txt"
    file.write_text(text)
    return read_paths([file], FORMATS)


def said(text, tmp_path):
    return [(r.signal, r.value, str(r.entity)) for r in read(text, tmp_path).readings]


PAIRS = [
    ("rx_discards_phy {}", "discards"),
    ("     rx_prio3_discards: {}", "discards"),
    ("PortXmitDiscards:................{}", "discards"),
    ("     rx_total_discard_pkts: {}", "discards"),
    ("np_cnp_sent {}", "congestion"),
    ("     tx_prio3_pause: {}", "congestion"),
    ("     pfc_pri3_rx_transitions: {}", "congestion"),
    ("PortXmitWait:....................{}", "congestion"),
    ("out_of_sequence={}", "out_of_sequence"),
    ("packet_seq_err {}", "out_of_sequence"),
    ("roce_adp_retrans {}", "out_of_sequence"),
    ("local_ack_timeout_err {}", "ack_timeouts"),
    ("     link_down_events_phy: {}", "link_downed"),
    ("LinkDownedCounter:...............{}", "link_downed"),
    ("/sys/class/infiniband/mlx5_0/ports/1/counters/link_downed:{}", "link_downed"),
    ("SymbolErrorCounter:..............{}", "link_errors"),
    ("link mlx5_0/1 rx_write_requests 12 out_of_sequence {} packet_seq_err 0", "out_of_sequence"),
]


@pytest.mark.parametrize(("line", "signal"), PAIRS)
def test_two_dumps_of_a_counter_give_what_it_rose_by(line, signal, tmp_path):
    text = "# mlx5_0/ports/1/counters\n" + line.format(20) + "\n" + line.format(27) + "\n"
    assert said(text, tmp_path) == [(signal, 7, "link ? mlx5_0")]


@pytest.mark.parametrize(("line", "signal"), PAIRS)
def test_a_counter_that_does_not_move_says_nothing(line, signal, tmp_path):
    assert not said((line.format(20) + "\n") * 2, tmp_path)
    assert not said(line.format(0) + "\n", tmp_path)


@pytest.mark.parametrize(
    ("line", "signal"),
    [
        ("     rx_prio0_discards: 18442", "discards_standing"),
        ("port_xmit_discards 5100", "discards_standing"),
        ("rx_discards_phy: 220931", "discards_standing"),
        ("     rx_prio5_pause: 90211", "pause_standing"),
        ("np_cnp_sent 3880411", "pause_standing"),
        ("link_downed 260", "link_standing"),
        ("SymbolErrorCounter:..............1723", "link_standing"),
        ("port_rcv_errors: 90000", "link_standing"),
        ("packet_seq_err 402118", "retransmissions_standing"),
        ("local_ack_timeout_err: 2705", "retransmissions_standing"),
        ("roce_adp_retrans=70118", "retransmissions_standing"),
        ("     tx_pause_ctrl_phy: 90211", "pause_standing"),
        ("     rx_priority_3_xoff.nic: 90211", "pause_standing"),
    ],
)
def test_a_counter_in_the_thousands_stands_high(line, signal, tmp_path):
    assert said(f"$ ethtool -S eth1\n{line}\n", tmp_path) == [(signal, 1, "link ? eth1")]


def test_a_high_counter_that_rises_is_told_as_that(tmp_path):
    assert said("rx_discards_phy 5000 -> 5200\n", tmp_path) == [("discards", 200, "link ? ?")]


@pytest.mark.parametrize(
    "line",
    [
        "     rx_out_of_buffer: 990011",
        "     rx_prio0_discards: 12",
        "     rx_prio3_bytes: 88178050405854",
        "np_cnp_sent 133399",
    ],
)
def test_other_high_numbers_say_nothing(line, tmp_path):
    result = read(f"$ ethtool -S eth1\n{line}\n", tmp_path)
    assert not result.readings
    assert result.coverage.unrecognised == 0


PROTECTED = "PFC configuration:\n\tpriority    0   1   2   3   4   5   6   7\n\tenabled     {}\n"


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize(
    ("bits", "lossy"), [("0 0 0 1 0 0 0 0", True), ("1 0 0 1 0 0 0 0", False), ("0 0 0 0 0 0 0 0", True)]
)
def test_drops_on_a_priority_without_flow_control_are_told(order, bits, lossy, tmp_path):
    parts = [PROTECTED.format("   ".join(bits.split())), "     rx_prio0_discards: 18442\n"][::order]
    found = said("$ ethtool -S eth1\n" + "".join(parts), tmp_path)
    assert (("lossy_class", 1, "job") in found) is lossy


def test_flow_control_alone_says_nothing(tmp_path):
    assert not said(PROTECTED.format("0   0   0   0   0   0   0   0") + "     rx_prio0_discards: 0\n", tmp_path)


def test_metrics_of_an_exporter_are_counters_too(tmp_path):
    line = 'node_infiniband_link_downed_total{{device="mlx5_0",instance="n17:9100",port="1"}} {}\n'
    assert said(line.format(20) + line.format(21), tmp_path) == [("link_downed", 1, "link n17 mlx5_0")]


def test_counters_listed_with_their_paths_above_them(tmp_path):
    head = "==> /sys/class/infiniband/mlx5_3/ports/1/counters/link_downed <==\n"
    result = read(f"{head}2\n{head}4\n", tmp_path)
    assert [(r.signal, r.value, str(r.entity)) for r in result.readings] == [("link_downed", 2, "link ? mlx5_3")]
    assert result.coverage.unrecognised == 0


def test_the_list_of_a_fabric_names_host_and_switch(tmp_path):
    text = (
        'Errors for "n17 mlx5_3"\n   GUID 0x7cfe900300179b31 port 1: [LinkDownedCounter == {}] [PortXmitWait == 42]\n'
        'Errors for 0x2c903006e29b0 "MF0;leaf12:SX6036/U1"\n'
        "   GUID 0x2c903006e29b0 port ALL: [PortXmitDiscards == 15854]\n"
        "   GUID 0x2c903006e29b0 port 12: [PortXmitDiscards == 15854]\n## Summary: 5 nodes checked, 2 bad nodes found\n"
    )
    found = said(text.format(8) + text.format(9), tmp_path)
    assert set(found) == {
        ("discards_standing", 1, "link leaf12 0x2c903006e29b0 port 12"),
        ("link_downed", 1, "link n17 mlx5_3"),
    }


@pytest.mark.parametrize(
    "line",
    ["     rx_prio3_pause: 4102", "np_cnp_sent 3880", "link_downed 14", "symbol_error 410", "out_of_sequence 902"],
)
def test_totals_that_a_well_port_has_say_nothing(line, tmp_path):
    assert not said(line + "\n", tmp_path)


LINES = [
    ("mlx5_4 port 1 ==> ibp154s0 (Down)", "port_inactive", "link ? mlx5_4"),
    ("CA 'mlx5_3'\n\t\tState: Initializing", "port_inactive", "link ? mlx5_3"),
    ("link mlx5_3/1 state DOWN physical_state POLLING netdev ibp94s0", "port_inactive", "link ? mlx5_3"),
    ("Jun 11 08:04:31 leaf12 Ebra: %LINEPROTO-5-UPDOWN: Line protocol on Interface Ethernet12/1, changed state to down",
     "nic_link_down", "link leaf12 Ethernet12/1"),
    ("2025 Jun 11 08:04:31 leaf03 %ETHPORT-5-IF_DOWN_LINK_FAILURE: Interface Ethernet1/12 is down (Link failure)",
     "nic_link_down", "link leaf03 Ethernet1/12"),
    ("Jun 11 08:04:31.123456 leaf03 NOTICE swss#orchagent: :- updatePortOperStatus: Port Ethernet48 oper state set from"
     " up to down", "nic_link_down", "link leaf03 Ethernet48"),
    ("Jun 11 08:04:51 leaf12 mib2d[27]: SNMP_TRAP_LINK_DOWN: ifIndex 5, ifOperStatus down(2), ifName et-0/0/12",
     "nic_link_down", "link leaf12 et-0/0/12"),
    ("Jun 11 08:04:31 554120 [A1B2C700] 0x01 -> log_trap_info: Received Generic Notice type:1 num:128 (Link state"
     " change) Producer:2 (Switch) from LID:17", "fabric_sweep", "job"),
    ("Jun 11 08:04:32 001122 [A1B2C700] 0x02 -> osm_opensm: HEAVY SWEEP START", "fabric_sweep", "job"),
    ("Jun 11 08:04:31 spine2 Bgp: %BGP-5-ADJCHANGE: peer 10.0.12.1 old state Established event HoldTime new state Idle",
     "route_lost", "job"),
    ("2025/10/02 17:22:06 BGP: [ZWCSR-M7FG9] %ADJCHANGE: neighbor swp52(spine02) in vrf default Down BFD down received",
     "route_lost", "job"),
    ("Oct  2 17:22:07 leaf12 bgpd[71]: %ADJCHANGE: neighbor 10.0.0.1 Down Peer closed the session",
     "route_lost", "job"),
    ("Aug 11 13:02:44.771204 tor-204 NOTICE swss#orchagent: :- PfcWdActionHandler: PFC Watchdog detected PFC storm on"
     " port Ethernet40, queue index 3, queue id 0x15 and port id 0x1.", "pause_storm", "link tor-204 Ethernet40"),
    ("Ethernet4:3   stormed     2/1    0/46497254           0/0           0/666293                0/0",
     "pause_storm", "link ? Ethernet4"),
    ("Ethernet4:3  operational     1/1    0/45830961           0/0         0/45830961                0/0",
     "pause_storm", "link ? Ethernet4"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "signal", "entity"), LINES)
def test_states_of_ports_and_of_the_fabric(text, signal, entity, tmp_path):
    assert (signal, 1, entity) in said(text + "\n", tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "mlx5_0 port 1 ==> ibp24s0 (Up)",
        "CA 'mlx5_3'\n\t\tState: Active\n\t\tPhysical state: LinkUp",
        "Jun 11 08:04:32 001122 [A1B2C700] 0x02 -> SUBNET UP",
        "Jun 11 08:04:31 leaf12 Ebra: %LINEPROTO-5-UPDOWN: Line protocol on Interface Vlan12, changed state to down",
        "Oct  2 17:22:07 leaf12 bgpd[71]: %ADJCHANGE: neighbor 10.0.0.1 Up",
        "Aug 11 13:02:47.1 tor-204 NOTICE swss#orchagent: :- ~PfcWdActionHandler: PFC Watchdog storm restored on port"
        " Ethernet40, queue index 3, queue id 0x15 and port id 0x1.",
        "Ethernet4:3  operational     0/0    0/0           0/0         0/0                0/0",
        "Priority trust state: dscp",
        "GPU0\t X \tNV18\tNV18\tPIX\tSYS\t0-47\t0\t\tN/A",
    ],
)
def test_ordinary_listings_say_nothing(text, tmp_path):
    result = read(text + "\n", tmp_path)
    assert not result.readings
    assert result.coverage.unrecognised <= ("Vlan" in text)
