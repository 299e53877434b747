"""From an architecture on a system to the problem of a placement."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

import schedules
from explorer import api
from explorer.config import catalogue
from explorer.config.roofline import BlockCosts
from explorer.config.topology import Sharing
from explorer.core.errors import Inapplicable, UsageError
from explorer.core.op import Kind
from explorer.core.placement import Placement, linear
from explorer.costs.layers import embedding_costs, head_costs, layer_costs
from explorer.costs.problem import TransformerCosts, architecture_of
from explorer.costs.select import choose, transformer_costs
from explorer.costs.training import Piece, Training

SYSTEM = catalogue.load_system("h100-sxm")
MODEL, _ = architecture_of(catalogue.load_model("llama3-8b"), "llama3-8b")
TRAINING = Training(sequence=4096)


def costs(**given: object) -> TransformerCosts:
    return TransformerCosts(**{"architecture": MODEL, "training": TRAINING, "system": SYSTEM, **given})  # type: ignore[arg-type]


def placement_of(name: str, devices: int, microbatches: int) -> Placement:
    return schedules.find(name)(devices, microbatches).placement


def test_a_stage_is_the_sum_of_what_it_holds() -> None:
    problem = costs().problem(linear(4, 8))
    layer = layer_costs(MODEL, TRAINING, SYSTEM, 0)
    ends = {0: embedding_costs(MODEL, TRAINING, SYSTEM), 3: head_costs(MODEL, TRAINING, SYSTEM)}
    for stage in range(4):
        for kind in Kind:
            want = 8 * layer.seconds[kind] + (ends[stage].seconds[kind] if stage in ends else 0)
            got = problem.time.value(int(problem.durations[0, stage, kind]))
            assert abs(got - want) <= problem.rounding, "32 layers on 4 stages, the ends at the ends"
    assert problem.bytes is not None
    assert problem.bytes.held[0].tolist() == [
        8 * layer.activation + (ends[stage].activation if stage in ends else 0) for stage in range(4)
    ]


def test_both_ends_are_on_the_device_that_has_both_stages() -> None:
    placement = placement_of("zb-v", 4, 8)
    problem = costs().problem(placement)
    assert problem.bytes is not None
    on_first = [chunk for chunk, hosts in enumerate(placement.hosts) if hosts == (0,)]
    layer = layer_costs(MODEL, TRAINING, SYSTEM, 0)
    ends = embedding_costs(MODEL, TRAINING, SYSTEM).static + head_costs(MODEL, TRAINING, SYSTEM).static
    assert sum(problem.bytes.static[chunk] for chunk in on_first) == 8 * layer.static + ends


def test_tied_ends_on_one_device_share_their_weights() -> None:
    """On one device, or at both ends of a V, the head's weights are the embedding's; at the ends of a line not."""
    tied = replace(MODEL, tied=True)
    for name, devices, shared in (("1f1b", 1, True), ("zb-v", 4, True), ("1f1b", 4, False)):
        placement = placement_of(name, devices, 8)
        both, once = (costs(architecture=model).problem(placement).bytes for model in (MODEL, tied))
        assert both is not None and once is not None
        saved = int(both.static.sum() - once.static.sum())
        assert saved == (head_costs(MODEL, TRAINING, SYSTEM).static if shared else 0)


def test_a_layer_that_is_recomputed_has_room() -> None:
    """Whole layers from their inputs: one layer's activations are there while its backward runs."""
    full = replace(TRAINING, recompute="full")
    problem, plain = (costs(training=training).problem(linear(4, 8)) for training in (full, TRAINING))
    assert problem.bytes is not None and plain.bytes is not None
    room = layer_costs(MODEL, TRAINING, SYSTEM, 0).activation - layer_costs(MODEL, full, SYSTEM, 0).activation
    assert (problem.bytes.static - plain.bytes.static).tolist() == [room] * 4


def test_pieces_say_what_stages_hold() -> None:
    pieces = (
        Piece(range(0, 0), embedding=True),
        Piece(range(0, 20)),
        Piece(range(20, 32)),
        Piece(range(32, 32), head=True),
    )
    problem = costs(pieces=pieces).problem(linear(4, 8))
    assert problem.durations[0, 1, Kind.F] == pytest.approx(problem.durations[0, 2, Kind.F] * 20 / 12, abs=2)
    with pytest.raises(Inapplicable, match=r"layout is for 4 stages.*into 8"):
        costs(pieces=pieces).problem(linear(8, 8))
    with pytest.raises(Inapplicable, match="a stage holds nothing"):
        costs(pieces=(Piece(range(32), True, True), Piece(range(0)))).problem(linear(2, 8))


def test_shares_of_the_model_are_those_of_its_weights() -> None:
    """Three quarters of the layers on the second device: about that of the weights, and all of them together."""
    pieces = (Piece(range(8), embedding=True), Piece(range(8, 32), head=True))
    shares = [device.resident_share for device in api.evaluate("1f1b", costs(pieces=pieces), 2, 4).devices]
    assert sum(shares) == 1
    layer, embedding = (of(MODEL, TRAINING, SYSTEM).weights for of in (_first_layer, embedding_costs))
    head = head_costs(MODEL, TRAINING, SYSTEM).weights
    assert shares[0] == Fraction(8 * layer + embedding, 32 * layer + embedding + head)


def _first_layer(*what: object) -> BlockCosts:
    return layer_costs(*what, 0)  # type: ignore[arg-type]


def test_replicas_hold_the_same_pieces() -> None:
    problem = costs().problem(placement_of("chimera", 4, 8))
    alone = costs().problem(linear(4, 8))
    assert problem.durations.tolist() == alone.durations.tolist()
    assert problem.sync.min() > 0, "two replicas all-reduce"
    assert alone.sync.max() == 0


def test_ranks_are_laid_out_tensor_then_data_then_pipeline() -> None:
    """8 GPUs a node: with 8 copies of 1 GPU the next stage is in the next node; with 1 copy it is in the same."""
    link = SYSTEM.link_names
    for data, tensor, kind in ((1, 1, "node"), (8, 1, "network"), (1, 8, "network"), (2, 2, "node")):
        problem = costs(training=replace(TRAINING, data=data, tensor=tensor)).problem(linear(2, 8))
        assert link[problem.network.link[0, 1]] == kind
        assert problem.copies == data
    assert costs(training=replace(TRAINING, data=4)).slots(linear(3, 1)) == (0, 4, 8)


def test_groups_that_do_not_fit_are_refused() -> None:
    with pytest.raises(Inapplicable, match="tensor parallelism of 16 does not divide 8 key-value heads"):
        costs(training=replace(TRAINING, tensor=16))
    with pytest.raises(Inapplicable, match="tensor parallelism of 16 does not fit a node of 8"):
        costs(training=replace(TRAINING, tensor=16), architecture=replace(MODEL, key_value_heads=32))
    with pytest.raises(Inapplicable, match="context parallelism of 3 does not divide 4096 tokens"):
        costs(training=replace(TRAINING, context=3))
    with pytest.raises(Inapplicable, match="expert parallelism needs a model with experts"):
        costs(training=replace(TRAINING, data=2, expert=2))
    with pytest.raises(UsageError, match="32 devices are asked for, and the system has 16"):
        costs(system=replace(SYSTEM, nodes=2), training=replace(TRAINING, data=8)).problem(linear(4, 8))


def test_another_batch_is_told() -> None:
    told = costs(training=replace(TRAINING, microbatch=2, data=4, global_batch=100)).problem(linear(4, 8)).notes
    assert any("make a batch of 64 sequences, not 100" in note for note in told)
    exact = costs(training=replace(TRAINING, microbatch=2, data=4, global_batch=64)).problem(linear(4, 8)).notes
    assert not any("make a batch" in note for note in exact)


def test_shipped_models_become_architectures() -> None:
    assert (MODEL.key_value_heads, MODEL.head_width, MODEL.gated) == (8, 128, True)
    with pytest.raises(UsageError, match="give its file a key 'vocabulary'"):
        architecture_of(catalogue.load_model("paper-128x4096"), "paper-128x4096")


def test_bytes_of_a_models_file_count_layer_by_layer() -> None:
    """bytes_per_parameter is of all: 6 are 2 of a weight, 2 of a gradient and 2 of the optimiser's."""
    shipped = catalogue.load_model("llama3-8b")
    lean, _ = architecture_of(replace(shipped, bytes_per_gradient=2, bytes_per_parameter=6), "lean")
    assert (MODEL.bytes_per_gradient, MODEL.bytes_per_state) == (4, 12)
    assert (lean.bytes_per_gradient, lean.bytes_per_state) == (2, 2)
    # A layer of Llama 3 8B: two norms, 2 x 4096^2 and 2 x 4096 x 1024 of attention, 3 x 4096 x 14336 of the MLP.
    weights = 2 * 4096 + 2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336
    four = {"data": 4}
    for given, static, gradient, stepped in (
        (four, 6, 2, 2 + 2 * 2 + 2),
        (four | {"distributed_optimizer": True}, 4 + 2 / 4, (2 + 2) / 2, (2 + 2 * 2 + 2) / 4),
        (four | {"sharded_parameters": True}, 6 / 4, (2 + 2) / 2, (2 + 2 * 2 + 2) / 4),
    ):
        layer = layer_costs(lean, replace(TRAINING, **given), SYSTEM, 0)
        assert (layer.static, layer.gradient, layer.stepped) == (
            static * weights,
            gradient * weights,
            stepped * weights,
        )
    plain = layer_costs(MODEL, TRAINING, SYSTEM, 0)
    assert plain.static == 18 * weights
    assert plain.seconds[Kind.F] == layer_costs(lean, TRAINING, SYSTEM, 0).seconds[Kind.F]


def test_costs_depend_on_the_bytes_of_a_models_file(tmp_path: Path) -> None:
    """As an option for layers chooses them, and as the whole of a small model shows them."""
    path = tmp_path / "own.toml"
    text = (
        'description = "own"\nblocks = 4\nhidden = 64\nheads = 4\nsequence = 128\nfeed_forward = 256\n'
        "global_batch = 8\nvocabulary = 1000\n"
    )
    static = []
    for more in ("", "bytes_per_gradient = 2\nbytes_per_parameter = 6\n"):
        path.write_text(text + more)
        chosen = choose(str(path), {"tensor_parallel": 1}, None)
        bytes_ = transformer_costs(chosen, SYSTEM, None).problem(linear(1, 8)).bytes
        assert bytes_ is not None
        static.append(int(bytes_.static.sum()))
    # Per layer 2 norms, 4 matrices of attention and 2 of the MLP; the embedding, the head and its norm.
    weights = 4 * (2 * 64 + 4 * 64**2 + 2 * 64 * 256) + 2 * 1000 * 64 + 64
    assert static == [18 * weights, 6 * weights]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"key_value_width": 1100}, "key_value_width 1100 must be a number of heads of width 128 that divides 32"),
        ({"key_value_width": 64}, "key_value_width 64 must be a number of heads of width 128"),
        ({"key_value_width": 896}, "key_value_width 896 must be a number of heads of width 128 that divides 32"),
        ({"bytes_per_element": 4}, "bytes_per_element 4 is not modelled layer by layer"),
        ({"bytes_per_parameter": 5}, "bytes_per_parameter 5 is less than the weight's 2 and bytes_per_gradient 4"),
    ],
)
def test_models_that_would_be_read_as_others_are_refused(given: dict[str, int], said: str) -> None:
    model = replace(catalogue.load_model("llama3-8b"), **given)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=f"own: {said}"):
        architecture_of(model, "own")


def test_ranks_that_share_a_nic_wait_for_one_another() -> None:
    """One NIC for the 8 GPUs of a node: the 8 ranks of a tensor-parallel group send, and reduce, through it."""
    network = SYSTEM.links.network
    assert network is not None
    own, shared = (replace(SYSTEM, shared=(Sharing("NIC", devices=devices, links=("network",)),)) for devices in (1, 8))
    for tensor, data, crowd in ((8, 2, 8), (1, 8, 8), (1, 1, 1)):
        training = replace(TRAINING, tensor=tensor, data=data)
        alone, crowded = (costs(system=system, training=training).problem(linear(2, 8)) for system in (own, shared))
        which = SYSTEM.link_names.index("network")
        ratio = crowded.network.occupancy[0, 0, which] / alone.network.occupancy[0, 0, which]
        assert ratio == pytest.approx(crowd, rel=1e-4)
    training = replace(TRAINING, tensor=8, data=2)
    alone, crowded = (costs(system=system, training=training).problem(linear(2, 8)).sync for system in (own, shared))
    late = 2 * float(network.startup) / float(costs().problem(linear(2, 8)).time.tick)
    assert crowded[0] - late == pytest.approx(8 * (alone[0] - late), rel=1e-6), "all but the latency"


def test_longer_all_reduces_with_more_copies() -> None:
    one, two, many = (
        costs(training=replace(TRAINING, data=data)).problem(linear(4, 8)).sync.max() for data in (1, 2, 16)
    )
    assert one == 0 < two < many


def test_shares_are_checked() -> None:
    with pytest.raises(UsageError):
        costs(freed_at_input=Fraction(2))
