"""Topologies: which link joins two slots, what pairs share, where devices sit, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

import schedules
from explorer.config import catalogue
from explorer.config.decode import decode, parse
from explorer.config.modelled import ModelledCosts
from explorer.config.system import System
from explorer.config.topology import Layout, Link, Sample, nccl_samples, pairs_in_use, shared, shared_with_rings
from explorer.core.errors import Malformed, UsageError
from explorer.core.placement import linear, loop
from explorer.core.problem import Communication, Resource
from explorer.evaluation.checker import slack, verify
from explorer.evaluation.longest_path import evaluate

CLUSTER = """
description = "racks of 2 nodes of 4 devices, 2 a switch"
devices_per_node = 4
devices_per_switch = 2
nodes_per_rack = 2
nodes = 8
[compute]
matrix = "100 TFLOP/s"
[memory]
size = "80 GiB"
bandwidth = "2 TB/s"
[links.switch]
latency = "1 us"
bandwidth = "20 GB/s"
[links.node]
latency = "2 us"
bandwidth = "15 GB/s"
[links.network]
latency = "5 us"
bandwidth = "10 GB/s"
[links.rack]
latency = "9 us"
bandwidth = "4 GB/s"
"""
NIC = """
[[shared]]
name = "NIC"
devices = 4
links = ["network", "rack"]
"""


def system(text: str = CLUSTER) -> System:
    return decode(System, parse(text, "x.toml"), "x.toml")


def kinds(system: System, pairs: list[tuple[int, int]]) -> list[str]:
    return [system.link_names[system.link(*pair)] for pair in pairs]


def pairs_of(resources: tuple[Resource, ...]) -> dict[str, frozenset[tuple[int, int]]]:
    assert {one.servers for one in resources} == {1}
    return {one.name: one.pairs for one in resources}


def test_the_smallest_group_that_holds_both_gives_the_link() -> None:
    pairs = [(0, 1), (1, 2), (3, 4), (0, 7), (7, 8), (15, 0)]
    assert kinds(system(), pairs) == ["switch", "node", "network", "network", "rack", "rack"]


def test_a_nic_a_node_is_shared_by_all_that_leaves_or_enters_it() -> None:
    """Interleaved over two nodes of 4: 3 -> 4 and 7 -> 0 cross forward, 4 -> 3 and 0 -> 7 backward."""
    slots = tuple(range(8))
    found = pairs_of(shared(system(CLUSTER + NIC), slots, pairs_in_use(loop(8, 8, 2))))
    assert found == {
        "NIC 0 out": {(3, 4), (0, 7)}, "NIC 1 in": {(3, 4), (0, 7)},
        "NIC 1 out": {(7, 0), (4, 3)}, "NIC 0 in": {(7, 0), (4, 3)},
    }  # fmt: skip
    half = pairs_of(shared(system(CLUSTER + NIC + 'duplex = "half"'), slots, pairs_in_use(loop(8, 8, 2))))
    assert half == {name: {(3, 4), (0, 7), (7, 0), (4, 3)} for name in ("NIC 0", "NIC 1")}


def test_parallel_ones_serve_as_many_pairs_at_a_time() -> None:
    pairs = [(source, to) for source in range(4) for to in (4, 5)]
    (out, into) = shared(system(CLUSTER + NIC + "parallel = 2"), tuple(range(8)), pairs)
    assert (out.name, out.servers, out.pairs) == ("NIC 0 out", 2, frozenset(pairs))
    assert (into.name, into.servers, into.pairs) == ("NIC 1 in", 2, frozenset(pairs))
    assert shared(system(CLUSTER + NIC + "parallel = 2"), tuple(range(8)), pairs[:2]) == ()
    assert len(shared(system(CLUSTER + NIC + "parallel = 2"), tuple(range(8)), pairs[:3])) == 2


def test_a_pipeline_with_one_pair_each_way_shares_nothing() -> None:
    assert shared(system(CLUSTER + NIC), tuple(range(8)), pairs_in_use(linear(8, 8))) == ()


def test_a_ring_passes_what_transfers_between_its_neighbours_pass() -> None:
    """1F1B over two nodes of 4: one pair each way. Rings: of 3 in two copies, and of 4 and 5, which share a switch."""
    slots, pairs = tuple(range(8)), pairs_in_use(linear(8, 8))
    resources, (copied, inside) = shared_with_rings(system(CLUSTER + NIC), slots, pairs, [[3, 11], [4, 5]])
    assert {one.name: one.pairs for one in resources} == {
        "NIC 0 out": {(3, 4)}, "NIC 0 in": {(4, 3)}, "link 4 -> 5": {(4, 5)}, "link 5 -> 4": {(5, 4)},
    }  # fmt: skip
    assert {resources[position].name for position in copied} == {"NIC 0 out", "NIC 0 in"}
    assert {resources[position].name for position in inside} == {"link 4 -> 5", "link 5 -> 4"}
    # Rings that share a NIC with one another alone are listed too.
    resources, passed = shared_with_rings(system(CLUSTER + NIC), slots, [], [[0, 8], [1, 9], [4, 12]])
    assert [one.name for one in resources] == ["NIC 0 in", "NIC 0 out", "NIC 2 in", "NIC 2 out"]
    assert passed == ((0, 1, 2, 3), (0, 1, 2, 3), ())


def test_layouts() -> None:
    cluster = system()
    assert Layout().place(cluster, 6) == (0, 1, 2, 3, 4, 5)
    assert Layout(per_node=1).place(cluster, 3) == (0, 4, 8)
    assert Layout(per_node=2).place(cluster, 4) == (0, 2, 4, 6)
    assert Layout(slots=(5, 0)).place(cluster, 2) == (5, 0)


@pytest.mark.parametrize(
    ("layout", "devices", "message"),
    [
        (Layout(), 33, "33 devices need 9 nodes of 4, and the system has 8: 32 devices in all"),
        (Layout(per_node=1), 9, "9 devices need 9 nodes"),
        (Layout(slots=(0, 32)), 2, "2 devices need 9 nodes"),
        (Layout(copies=9), 4, "9 copies of 4 devices need 9 nodes"),
        (Layout(per_node=5), 8, "a node of this system has 4 devices, not 5"),
        (Layout(slots=(0, 1)), 3, "the map of devices names 2 slots for 3 devices"),
    ],
)
def test_more_than_the_system_has(layout: Layout, devices: int, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        layout.place(system(), devices)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"per_node": 1, "slots": (0,)}, "not both"),
        ({"per_node": 0}, "devices per node must be at least 1"),
        ({"slots": (1, 1)}, "a slot of its own"),
        ({"slots": (-1, 1)}, "a slot of its own"),
        ({"copies": 0}, "data-parallel copies must be between 1"),
    ],
)
def test_layouts_that_are_none(given: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Layout(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("devices_per_switch = 2", "devices_per_switch = 3", "devices_per_switch must divide devices_per_node"),
        ("nodes = 8", "nodes = -1", "cannot be negative"),
        ("[links.rack]", "[links.uplink]", "unknown key 'links.uplink'"),
        ('bandwidth = "4 GB/s"', "", "links.rack: a link needs both latency and bandwidth"),
        ('latency = "9 us"\nbandwidth = "4 GB/s"', "", "links.rack: a link needs either latency and bandwidth"),
        (
            'bandwidth = "4 GB/s"',
            'bandwidth = "4 GB/s"\n[[shared]]\ndevices = 2',
            r"the key 'shared\[0\].name' is missing",
        ),
        (
            'bandwidth = "4 GB/s"',
            'bandwidth = "4 GB/s"\n[[shared]]\nname = "x"\ndevices = 0',
            r"shared\[0\]: devices and",
        ),
        (
            'bandwidth = "4 GB/s"',
            'bandwidth = "4 GB/s"\n[[shared]]\nname = "x"\nlinks = ["netwrok"]',
            r"shared\[0\]: no kind of link is called 'netwrok'; did you mean 'network'",
        ),
        (
            'bandwidth = "4 GB/s"',
            'bandwidth = "4 GB/s"\n[[shared]]\nname = "x"\nduplex = "both"',
            "must be full or half",
        ),
        ('bandwidth = "4 GB/s"', 'bandwidth = "4 GB/s"\n[shared]\nname = "x"', "shared must be a list"),
        ('latency = "9 us"\nbandwidth = "4 GB/s"', 'times = [{size = "1 KiB", time = "9 us"}]', "at least two sizes"),
        (
            'latency = "9 us"\nbandwidth = "4 GB/s"',
            'times = [{size = "2 KiB", time = "9 us"}, {size = "1 KiB", time = "9 us"}]',
            "by ascending size",
        ),
    ],
)
def test_broken_topologies_are_refused(old: str, new: str, message: str) -> None:
    assert old in CLUSTER
    with pytest.raises(Malformed, match=message):
        system(CLUSTER.replace(old, new, 1))


def test_nodes_that_nothing_joins() -> None:
    a = CLUSTER.index("[links.network]")
    island = replace(system(CLUSTER[:a].replace("nodes_per_rack = 2", "")), nodes=0)
    costs = ModelledCosts(catalogue.load_model("llama3-8b"), island)
    costs.problem(linear(4, 8))
    with pytest.raises(UsageError, match=r"slots 3 and 4 are in different nodes of 4, which nothing joins"):
        costs.problem(linear(8, 8))


def test_measured_times_stand_in_for_latency_and_bandwidth() -> None:
    us = Fraction(1, 10**6)
    link = Link(
        times=(Sample(Fraction(1000), 10 * us), Sample(Fraction(2000), 11 * us), Sample(Fraction(4000), 15 * us))
    )
    assert link.startup == 10 * us
    assert [link.occupancy(size) / us for size in (1, 1000, 1500, 2000, 3000, 4000, 8000)] == [
        0, 0, Fraction(1, 2), 1, 3, 5, 13,
    ]  # fmt: skip


NCCL = """# nThread 1 nGpus 8 minBytes 8 maxBytes 134217728
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
           0             0     float    none      -1     0.20    0.00    0.00      0     0.16    0.00    0.00    N/A
        1024           256     float    none      -1    13.00    0.08    0.08      0    12.90    0.08    0.08    N/A
        2048           512     float    none      -1    12.00    0.17    0.17      0    12.70    0.16    0.16    N/A
     1048576        262144     float    none      -1    60.00   17.48   17.48      0    59.70   17.56   17.56    N/A
# Out of bounds values : 0 OK
"""


def test_output_of_nccl_tests(tmp_path: Path) -> None:
    samples = nccl_samples(NCCL, "x.txt")
    assert [(int(s.size), s.time * 10**6) for s in samples] == [(1024, 13), (2048, 13), (1048576, 60)]
    (tmp_path / "pair.txt").write_text(NCCL)
    a = CLUSTER.index("[links.rack]")
    (tmp_path / "mine.toml").write_text(CLUSTER[:a] + '[links.rack]\nnccl_tests = "pair.txt"\n')
    read = catalogue.load_system(str(tmp_path / "mine.toml"))
    assert read.links.rack == Link(times=samples)
    with pytest.raises(Malformed, match=r"x\.txt:2: expected size, count, type"):
        nccl_samples(NCCL.splitlines()[-2] + "\n1024 256\n", "x.txt")
    with pytest.raises(Malformed, match="at least two sizes"):
        nccl_samples("# nothing", "x.txt")
    (tmp_path / "pair.txt").unlink()
    with pytest.raises(UsageError, match=r"there is no file .*pair\.txt"):
        catalogue.load_system(str(tmp_path / "mine.toml"))


def test_one_nic_a_node_slows_what_crosses_it() -> None:
    """Interleaved schedules cross between nodes twice; 1F1B, with one pair each way, does not notice."""
    model = catalogue.load_model("llama3-8b")
    fast = system(CLUSTER.replace("100 TFLOP/s", "50 PFLOP/s").replace("2 TB/s", "1000 TB/s"))
    slow = replace(fast, shared=())
    ports = replace(slow, shared=system(CLUSTER + NIC).shared)
    spans = {}
    for name in ("1f1b", "interleaved-1f1b"):
        schedule = schedules.find(name)(8, 16)
        spans[name] = [
            evaluate(schedule, ModelledCosts(model, each).problem(schedule.placement)).makespan
            for each in (slow, ports)
        ]
    assert spans["1f1b"][0] == spans["1f1b"][1]
    assert spans["interleaved-1f1b"][0] < spans["interleaved-1f1b"][1]


def test_data_parallel_copies_all_reduce_every_chunk() -> None:
    model, cluster = catalogue.load_model("llama3-8b"), system()
    placement = linear(4, 8)
    costs = ModelledCosts(model, cluster, layout=Layout(copies=4))
    problem = costs.problem(placement)
    assert problem.copies == 4
    schedule = schedules.find("1f1b")(4, 8)
    timeline = evaluate(schedule, problem)
    assert [sync.chunk for sync in timeline.syncs] == [3, 2, 1, 0]
    assert timeline.makespan == timeline.syncs[-1].end
    alone = evaluate(schedule, replace(costs, gradient_sync=False).problem(placement))
    assert alone.syncs == () and alone.makespan == timeline.compute_end
    # A ring of 4 over the network (copies are on nodes of their own): 6 steps of a quarter of the gradients.
    parameters = 8 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336)  # of 8 blocks of Llama 3 8B
    network = cluster.links.network
    assert network is not None and network.bandwidth is not None and network.latency is not None
    expected = 6 * (Fraction(4 * parameters, 4) / network.bandwidth + network.latency)
    assert abs(problem.time.value(int(problem.sync[0])) - expected) <= problem.time.tick


def test_all_reduces_hold_the_nics_that_copies_use() -> None:
    model = catalogue.load_model("llama3-8b")
    cluster = system(CLUSTER.replace("10 GB/s", "200 MB/s").replace("4 GB/s", "200 MB/s") + NIC)
    apart = ModelledCosts(model, cluster, layout=Layout(copies=2))
    held = replace(apart, sync_on_links=True)
    schedule = schedules.find("gpipe")(8, 8)
    placement = schedule.placement
    problem = held.problem(placement)
    assert any("wait for one another" in note for note in problem.notes)
    assert (problem.sync == apart.problem(placement).sync).all()
    names = [{problem.network.shared[one][0] for one in passed} for passed in problem.sync_path]
    # Copies are on nodes 2 and 3: each ring goes there and back.
    for device, passed in enumerate(names):
        node = device // 4
        assert passed >= {f"NIC {node} out", f"NIC {node} in"}
        assert not passed & {f"NIC {1 - node} out", f"NIC {1 - node} in"}
    free, timeline = evaluate(schedule, apart.problem(placement)), evaluate(schedule, problem)
    assert verify(timeline, problem) == slack(timeline, problem) == []
    # The last stage is ready first. The next of its node is ready before that is done, and gradients have to cross.
    assert timeline.syncs[0] == free.syncs[0]
    assert free.syncs[1].start < free.syncs[0].end
    assert timeline.syncs[1].start >= timeline.syncs[0].end
    assert timeline.makespan > free.makespan


def test_only_mode_link_has_links_to_hold() -> None:
    model, cluster = catalogue.load_model("llama3-8b"), system()
    with pytest.raises(UsageError, match="mode link, not in mode blocking"):
        ModelledCosts(model, cluster, Communication.BLOCKING, sync_on_links=True)
    silent = ModelledCosts(model, cluster, gradient_sync=False, layout=Layout(copies=2), sync_on_links=True)
    assert not silent.problem(linear(8, 8)).syncs_compete
    unshared = ModelledCosts(model, cluster, layout=Layout(copies=2), sync_on_links=True).problem(linear(8, 8))
    assert not unshared.syncs_compete
    assert any("hold nothing" in note for note in unshared.notes)


def test_copies_share_the_global_batch() -> None:
    model, cluster = catalogue.load_model("llama3-8b"), system()
    alone = ModelledCosts(model, cluster).problem(linear(4, 32))
    shared_out = ModelledCosts(model, cluster, layout=Layout(copies=4)).problem(linear(4, 8))
    assert (shared_out.durations == alone.durations).all() and shared_out.notes == alone.notes == ()


def test_the_example_of_the_documentation(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs/clusters.md").read_text().split("```toml\n")[1].split("```")[0]
    (tmp_path / "mine.toml").write_text(text)
    (tmp_path / "between-racks.txt").write_text(NCCL)
    read = catalogue.load_system(str(tmp_path / "mine.toml"))
    in_turn = tuple(rack * 16 + slot for slot in range(8) for rack in range(2))
    costs = ModelledCosts(catalogue.load_model("gpt3-175b"), read, layout=Layout(slots=in_turn))
    problem = costs.problem(loop(16, 16, 2))
    assert {one.name.split()[0]: one.servers for one in problem.network.resources} == {"NIC": 1, "uplink": 2}
    assert {one.name.split()[0] for one in problem.network.resources} == {"NIC", "uplink"}
