"""Layer costs against the papers' closed formulas and published sizes."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from explorer.config import catalogue
from explorer.core.op import Kind
from explorer.costs.architecture import Architecture, Experts, Latent
from explorer.costs.collectives import ring
from explorer.costs.explain import explain
from explorer.costs.layers import flops, head_costs, layer_costs, parameters, parts_of, prediction_costs
from explorer.costs.training import Training

A100 = catalogue.load_system("a100-sxm")
SYSTEM = replace(A100, compute=replace(A100.compute, half_work=Fraction(0)))
"""Without an efficiency that depends on size, so that times are proportional to operations."""
S, B, H, HEADS, LAYERS, V = 2048, 4, 6144, 64, 48, 51200
GPT = Architecture("22B", LAYERS, H, HEADS, HEADS, H // HEADS, 4 * H, V, tied=True, dropout=True, positions=S)
PLAIN = Training(S, B, flash_attention=False)


@pytest.mark.parametrize(
    ("given", "per_token_and_width"),
    [
        ({}, 34 + 5 * HEADS * S / H),
        ({"flash_attention": True}, 34),
        ({"recompute": "selective"}, 34),
        ({"recompute": "full"}, 2),
        ({"tensor": 8}, 10 + 24 / 8 + 5 * HEADS * S / H / 8),
        ({"tensor": 8, "sequence_parallel": True}, 34 / 8 + 5 * HEADS * S / H / 8),
        ({"tensor": 8, "sequence_parallel": True, "recompute": "selective"}, 34 / 8),
        ({"context": 2, "flash_attention": True}, 34 / 2),
    ],
)
def test_activations_are_those_of_the_paper(given: dict[str, object], per_token_and_width: float) -> None:
    """arXiv:2205.05198, table 2: bytes a layer, over s b h."""
    costs = layer_costs(GPT, replace(PLAIN, **given), SYSTEM, 0)  # type: ignore[arg-type]
    assert costs.activation == pytest.approx(S * B * H * per_token_and_width, rel=1e-12)


def test_operations_are_those_of_the_paper() -> None:
    """arXiv:2205.05198, appendix A: 72 b l s h^2 (1 + s / 6h + v / 12 l h)."""
    want = 72 * B * LAYERS * S * H**2 * (1 + S / (6 * H) + V / (12 * LAYERS * H))
    assert flops(GPT, PLAIN, B) == pytest.approx(want, rel=1e-12)


def test_operations_do_not_depend_on_how_they_are_spread() -> None:
    spread = replace(PLAIN, tensor=8, context=2, recompute="full", microbatch=1)
    assert flops(GPT, spread, B) == flops(GPT, PLAIN, B)


@pytest.mark.parametrize(("given", "scores"), [({}, 5 * HEADS * S / H), ({"flash_attention": True}, 0)])
def test_the_input_gradient_frees_what_the_weight_gradient_does_not_need(
    given: dict[str, object], scores: float
) -> None:
    """arXiv:2401.10241, table 1: of s b h (34 + 5 a s / h) bytes 32 s b h are left for W."""
    costs = layer_costs(GPT, replace(PLAIN, **given), SYSTEM, 0)  # type: ignore[arg-type]
    assert costs.freed == pytest.approx(S * B * H * (2 + scores), rel=1e-12)


def test_without_dropout_no_masks_are_held() -> None:
    """Two masks of a byte outside attention, and of 5 a s^2 b inside 3 (mask and output of the dropout)."""
    without = replace(GPT, dropout=False)
    held = layer_costs(without, PLAIN, SYSTEM, 0).activation
    assert held == pytest.approx(S * B * H * (32 + 2 * HEADS * S / H), rel=1e-12)


def test_a_spread_optimizer_gathers_weights_instead_of_gradients() -> None:
    """A reduce-scatter of 4 bytes and an all-gather of 2 are 6/8 of an all-reduce of 4."""
    whole, spread = (
        layer_costs(GPT, replace(PLAIN, data=4, distributed_optimizer=on), SYSTEM, 0).gradient for on in (False, True)
    )
    assert spread == whole * 6 / 8


@pytest.mark.parametrize(("shared", "rounds"), [(0, 1 + 2), (H, 1 + 2 + 1)])
def test_tensor_parallel_experts_reduce_every_visit(shared: int, rounds: int) -> None:
    """Experts split by tensor parallelism: a token's two visits, and a shared expert, are a reduction each."""
    from explorer.costs.collectives import of_layer

    moe = replace(GPT, experts=Experts(8, 2, H, shared), expert_layers=frozenset({0}))
    exposed = of_layer(moe, replace(PLAIN, tensor=8), SYSTEM, experts=True)
    assert exposed.forward == exposed.backward == rounds * ring(SYSTEM, 8, 1, 2 * S * B * H)


def test_keys_and_values_go_round_behind_the_scores() -> None:
    """Context parallelism: hidden where sequences are long, else what lasts longer than the scores is exposed."""
    from explorer.costs.collectives import Exposed, of_layer

    def sent(sequence: int) -> Exposed:
        training = Training(sequence, context=4)
        local, width = sequence // 4, 2 * 2 * HEADS * (H // HEADS)
        link = SYSTEM.link_at(SYSTEM.link(0, 3))
        turn = 3 * (link.occupancy(local * width) + link.startup)
        attention = next(part for part in parts_of(GPT, training, 0) if part.scores)
        compute = SYSTEM.compute
        scores = attention.scores / (compute.matrix * compute.products)
        found = of_layer(GPT, training, SYSTEM, experts=False, scores=(scores, 5 * scores / 2))
        assert found.forward == max(0, turn - scores)
        assert found.backward == max(0, 2 * turn - 5 * scores / 2)
        return found

    assert sent(1024).forward > 0
    assert sent(131072).forward == 0


def test_small_products_reach_less_of_the_peak() -> None:
    """A product of half_work operations reaches half of what a large one does."""
    work = 2 * S * B * H * V
    half = replace(SYSTEM, compute=replace(SYSTEM.compute, half_work=Fraction(work)))
    assert head_costs(GPT, PLAIN, half).seconds[Kind.W] == 2 * head_costs(GPT, PLAIN, SYSTEM).seconds[Kind.W]


def test_a_layer_takes_no_less_than_its_launch() -> None:
    slow = replace(SYSTEM, overheads=replace(SYSTEM.overheads, layer=Fraction(1)))
    assert set(layer_costs(GPT, PLAIN, slow, 0).seconds.values()) == {1, 2}, "F, I and W 1 s each; B two of them"


def test_operations_of_a_prediction_layer_count() -> None:
    """A layer, a pass through the head, and the projection from 2 h to h: 4 s b h^2 forward."""
    more = flops(replace(GPT, prediction_layers=1), PLAIN, B) - flops(GPT, PLAIN, B)
    layer = sum(part.products + part.scores for part in parts_of(GPT, PLAIN, 0))
    assert more == 3 * (layer + 2 * S * B * H * V + 4 * S * B * H**2)


def test_the_head_holds_its_logits() -> None:
    """arXiv:2205.05198, section 4.3: 4 s b h (1 + v / h) bytes."""
    assert head_costs(GPT, PLAIN, SYSTEM).activation == 4 * S * B * H * (1 + V / H)


def test_optimiser_state_is_18_bytes_a_parameter_or_less_where_it_is_spread() -> None:
    """2 + 4 + 12; spread over n copies 6 + 12 / n (ZeRO 1), 18 / n (ZeRO 3): arXiv:1910.02054."""
    count = sum(part.parameters for part in parts_of(GPT, PLAIN, 0))
    assert layer_costs(GPT, replace(PLAIN, data=4), SYSTEM, 0).static == 18 * count
    assert layer_costs(GPT, replace(PLAIN, data=4, distributed_optimizer=True), SYSTEM, 0).static == 9 * count
    sharded = layer_costs(GPT, replace(PLAIN, data=4, sharded_parameters=True), SYSTEM, 0).static
    assert sharded == pytest.approx(18 / 4 * count, abs=1)


@pytest.mark.parametrize("flash", [False, True])
def test_full_recomputation_adds_a_forward_to_the_input_gradient(flash: bool) -> None:
    training = replace(PLAIN, flash_attention=flash)
    plain, full = (layer_costs(GPT, replace(training, recompute=how), SYSTEM, 0).seconds for how in ("none", "full"))
    assert full[Kind.I] == plain[Kind.I] + plain[Kind.F]
    assert full[Kind.W] == plain[Kind.W]
    for seconds in (plain, full):
        assert seconds[Kind.B] == seconds[Kind.I] + seconds[Kind.W]


def test_tensor_parallelism_shortens_ops_by_less_than_its_degree() -> None:
    one, two, eight = (layer_costs(GPT, replace(PLAIN, tensor=t), SYSTEM, 0).seconds[Kind.F] for t in (1, 2, 8))
    assert one / 8 < eight < two < one


def test_experts_that_nobody_shares_are_not_reduced() -> None:
    """With as many expert-parallel ranks as copies every expert lives once."""

    moe = replace(GPT, experts=Experts(8, 2, 4 * H), expert_layers=frozenset({0}))
    shared = sum(p.parameters for p in parts_of(moe, replace(PLAIN, data=8, expert=8), 0) if not p.expert)
    assert layer_costs(moe, replace(PLAIN, data=8, expert=8), SYSTEM, 0).gradient == 4 * shared
    whole = sum(p.parameters for p in parts_of(moe, PLAIN, 0))
    assert layer_costs(moe, replace(PLAIN, data=8), SYSTEM, 0).gradient == 4 * whole


def test_the_explanation_adds_up_to_the_layer() -> None:
    training = replace(PLAIN, tensor=8)
    lines = explain(GPT, training, SYSTEM, 0)
    costs = layer_costs(GPT, training, SYSTEM, 0)
    forward = sum(line.value for line in lines if line.what.endswith(", F"))
    assert forward == 1000 * costs.seconds[Kind.F]
    assert sum(line.value for line in lines if line.what == "held") * 2**20 == costs.activation


def test_gpt3_has_its_parameters() -> None:
    """arXiv:2005.14165: 175B, of which 12 l h^2 + 2 l h norms here; biases are left out."""
    gpt3 = Architecture("gpt3", 96, 12288, 96, 96, 128, 49152, 50257, tied=True, positions=2048)
    assert parameters(gpt3) == pytest.approx(174.6e9, rel=1e-3)


@pytest.mark.parametrize(
    ("architecture", "backward"),
    [
        (GPT, 5 / 2),
        # queries and keys are 192 wide, values 128: three products of the one, two of the other
        (replace(GPT, latent=Latent(1536, 512, 128, 64, 128)), (3 * 192 + 2 * 128) / (192 + 128)),
    ],
)
def test_the_backward_of_flash_attention_does_five_products_for_two(
    architecture: Architecture, backward: float
) -> None:
    """arXiv:2307.08691: operations of the backward are 2.5 times those of the forward."""

    short, long = Training(S), Training(2 * S)
    seconds = {
        kind: layer_costs(architecture, long, SYSTEM, 0).seconds[kind]
        - 2 * layer_costs(architecture, short, SYSTEM, 0).seconds[kind]
        for kind in (Kind.F, Kind.I)
    }
    assert float(seconds[Kind.I] / seconds[Kind.F]) == pytest.approx(backward, rel=1e-9)


@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_the_head_reduces_the_gradient_of_its_input_once(sequence_parallel: bool) -> None:
    spread = replace(PLAIN, tensor=8, sequence_parallel=sequence_parallel)
    wide = replace(SYSTEM, links=replace(SYSTEM.links, node=replace(SYSTEM.links.node, bandwidth=10**30, latency=0)))
    slow, fast = (head_costs(GPT, spread, system).seconds for system in (SYSTEM, wide))
    exposed = {kind: slow[kind] - fast[kind] for kind in (Kind.F, Kind.I, Kind.W)}
    whole = ring(SYSTEM, 8, 1, 2 * S * B * H) - ring(wide, 8, 1, 2 * S * B * H)
    assert whole > 0
    assert exposed[Kind.F] + exposed[Kind.I] == whole
    assert exposed[Kind.F] == (whole / 2 if sequence_parallel else 0)
    assert exposed[Kind.W] == 0


def test_prediction_holds_the_two_inputs_of_its_projection() -> None:
    """arXiv:2412.19437, section 2.2: a projection from 2 h to h, 2 x 2 bytes a token and width held."""
    alone = layer_costs(GPT, PLAIN, SYSTEM, LAYERS - 1).activation + head_costs(GPT, PLAIN, SYSTEM).activation
    assert prediction_costs(GPT, PLAIN, SYSTEM).activation == alone + 4 * S * B * H
