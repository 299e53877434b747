"""From an architecture, its training and a system to a `Problem`, for any placement."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache, reduce
from itertools import pairwise

from explorer.config.limits import check_shares
from explorer.config.model import Model
from explorer.config.modelled import SystemCosts, Workload, ring_seconds
from explorer.config.roofline import BlockCosts
from explorer.config.system import System
from explorer.config.topology import Layout
from explorer.core.errors import Inapplicable, UsageError
from explorer.core.placement import Placement
from explorer.core.problem import Communication
from explorer.costs.architecture import Architecture
from explorer.costs.balance import balanced
from explorer.costs.degrees import misfit
from explorer.costs.layers import ELEMENT, embedding_costs, head_costs, layer_costs, prediction_costs
from explorer.costs.layout import split
from explorer.costs.training import Piece, Training

_of_kind = lru_cache(maxsize=4096)(layer_costs)
_embedding, _head, _prediction = (lru_cache(maxsize=512)(of) for of in (embedding_costs, head_costs, prediction_costs))


def _layer(architecture: Architecture, training: Training, system: System, layer: int) -> BlockCosts:
    """What a layer costs: as the first of its kind, with or without experts."""
    return _of_kind(architecture, training, system, architecture.alike(layer))


@dataclass(frozen=True)
class TransformerCosts(SystemCosts):
    """Costs of a transformer in training on a system, by `explorer.costs.layers`.

    A device of the pipeline is a whole tensor- and context-parallel group. Ranks are laid out as Megatron-LM does:
    tensor, then context, then data parallel, then the pipeline.

    Parameters
    ----------
    architecture, training, system
        What runs, how it is spread, and where.
    pieces
        What each stage holds; layers spread evenly, with the embedding and the head at the ends, by default.
    balance
        Whether layers are spread so that the longest stage is shortest, instead.
    communication, gradient_sync, overlap, memory_limit, title, optimizer, sync_on_links
        As of `explorer.config.modelled.ModelledCosts`.
    freed_at_input
        By default I frees what W does not need.
    layout
        In place of that order: where the devices sit. Its ``copies`` are those of ``training``.
    """

    architecture: Architecture
    training: Training
    system: System
    pieces: tuple[Piece, ...] | None = None
    communication: Communication | None = None
    gradient_sync: bool = True
    freed_at_input: Fraction | None = None
    overlap: Fraction = Fraction(1)
    memory_limit: str | None = None
    layout: Layout = field(default_factory=Layout)
    title: str = "transformer"
    optimizer: bool = False
    balance: bool = False
    sync_on_links: bool = False

    def __post_init__(self) -> None:
        self.check_sync_on_links()
        check_shares(self.freed_at_input or Fraction(0), self.overlap)
        if self.layout.copies not in (1, self.training.data):
            raise UsageError(f"{self.layout.copies} data-parallel copies contradict {self.training.data}")
        object.__setattr__(self, "layout", replace(self.layout, copies=self.training.data))
        wrong = misfit(self.architecture, self.training, self.system)
        if wrong is not None:
            raise Inapplicable(wrong)

    @property
    def _group(self) -> int:
        return self.training.tensor * self.training.context

    def slots(self, placement: Placement) -> tuple[int, ...]:
        """The first slot of each device's group."""
        if self.layout.slots or self.layout.per_node is not None:
            return self._apart(super().slots(placement))
        stride = self._group * self.training.data
        slots = tuple(device * stride for device in range(placement.devices))
        needed, node = stride * placement.devices, self.system.devices_per_node
        if self.system.nodes and needed > self.system.nodes * node:
            raise UsageError(f"{needed} devices are asked for, and the system has {self.system.nodes * node}")
        return slots

    @property
    def side_by_side(self) -> int:
        """The ranks of a stage: of a device's group, and of all copies where these lie beside one another."""
        own = self.layout.slots or self.layout.per_node is not None
        return self._group if own else self._group * self.training.data

    def _apart(self, slots: tuple[int, ...]) -> tuple[int, ...]:
        """Slots that leave room for every device's group.

        Raises
        ------
        UsageError
            If groups overlap, or do not fit the system.
        """
        group, in_order = self._group, sorted(slots)
        if any(after - before < group for before, after in pairwise(in_order)):
            raise UsageError(f"every pipeline device is a group of {group}: its slots must be {group} apart")
        node = self.system.devices_per_node
        if self.system.nodes and in_order[-1] + group > self.system.nodes * node:
            raise UsageError(f"the last group of {group} ends beyond the system's {self.system.nodes * node} devices")
        return slots

    def workload(self, placement: Placement) -> Workload:
        """What the pieces cost that the chunks hold.

        Raises
        ------
        Inapplicable
            If there are more stages than layers, or pieces for another number of stages.
        """
        pieces = self.pieces_of(placement)
        chunks = [self._piece(piece) for piece in pieces]
        self._share_tied(placement, pieces, chunks)
        self._add_recomputed(placement, pieces, chunks)
        blocks = [len(piece.layers) for piece in pieces]
        message = _layer(self.architecture, self.training, self.system, 0).message
        return Workload(chunks, blocks, message, self.training.microbatch, tuple(self._notes(placement, blocks)))

    def pieces_of(self, placement: Placement) -> tuple[Piece, ...]:
        """What each chunk holds.

        Raises
        ------
        Inapplicable
            If the placement cuts the model in several ways, or into another number of stages than the pieces.
        """
        routes = {tuple(hop.chunk for hop in route) for route in placement.routes}
        lengths = {len(route) for route in routes}
        if placement.chunks != lengths.pop() or lengths:
            raise Inapplicable("this schedule cuts the model in several ways, which modelled layers do not support")
        if self.pieces is not None:
            pieces = self.pieces
        elif self.balance:
            pieces = balanced(self.architecture, self.training, self.system, placement.chunks)
        else:
            pieces = split(self.architecture, placement.chunks)
        if len(pieces) != placement.chunks:
            raise Inapplicable(
                f"the layout is for {len(pieces)} stages, and this schedule cuts the model into {placement.chunks}"
            )
        by_chunk = dict(zip(min(routes), pieces, strict=True))
        if any(tuple(route) != min(routes) for route in routes):
            raise Inapplicable("this schedule sends microbatches through the chunks in different orders")
        return tuple(by_chunk[chunk] for chunk in range(placement.chunks))

    def kinds_of_layers(self) -> dict[str, int]:
        """The first layer of each kind, by a title."""
        experts = self.architecture.expert_layers
        found: dict[str, int] = {}
        for layer in range(self.architecture.layers):
            found.setdefault("a layer with experts" if layer in experts else "a dense layer", layer)
        return {f"{title} (layer {layer})": layer for title, layer in found.items()}

    def _piece(self, piece: Piece) -> BlockCosts:
        what = (self.architecture, self.training, self.system)
        parts = [_layer(*what, layer) for layer in piece.layers]
        if piece.embedding:
            parts.append(_embedding(*what))
        parts += [_prediction(*what)] * piece.prediction
        if piece.head:
            parts.append(_head(*what))
        if not parts:
            raise Inapplicable("a stage holds nothing: give every stage a layer, the embedding or the head")
        return reduce(BlockCosts.plus, parts)

    def _share_tied(self, placement: Placement, pieces: tuple[Piece, ...], chunks: list[BlockCosts]) -> None:
        """Let the head use the embedding's weights where both are tied and on the same devices."""
        if not self.architecture.tied:
            return
        head = _head(self.architecture, self.training, self.system)
        embedded = {placement.hosts[chunk] for chunk, piece in enumerate(pieces) if piece.embedding}
        for chunk, piece in enumerate(pieces):
            if piece.head and placement.hosts[chunk] in embedded:
                own = chunks[chunk]
                chunks[chunk] = replace(
                    own,
                    static=own.static - head.static,
                    weights=own.weights - head.weights,
                    gradient=own.gradient - head.gradient,
                    stepped=own.stepped - head.stepped,
                )

    def _add_recomputed(self, placement: Placement, pieces: tuple[Piece, ...], chunks: list[BlockCosts]) -> None:
        """Let each device have room for the layer that is being recomputed: what it holds beyond its input."""
        if self.training.recompute != "full":
            return
        whole, roomy = replace(self.training, recompute="none"), set[int]()
        for resident in placement.resident:
            if roomy & set(resident):
                continue
            layers = [(layer, chunk) for chunk in resident for layer in pieces[chunk].layers]
            held = [
                _layer(self.architecture, whole, self.system, layer).activation
                - _layer(self.architecture, self.training, self.system, layer).activation
                for layer, _ in layers
            ]
            if held:
                chunk = layers[0][1]
                roomy.add(chunk)
                chunks[chunk] = replace(chunks[chunk], static=chunks[chunk].static + max(held))

    def sync_seconds(self, placement: Placement, slots: tuple[int, ...], chunks: list[BlockCosts]) -> list[Fraction]:
        """Ring all-reduces among the data- and context-parallel ranks of every host."""

        def seconds(chunk: int) -> Fraction:
            members = self.ring(placement, slots, chunk)
            return ring_seconds(self.system, members, len(members), chunks[chunk].gradient, rings=self.training.tensor)

        return [seconds(chunk) for chunk in range(placement.chunks)]

    def ring(self, placement: Placement, slots: tuple[int, ...], chunk: int) -> list[int]:
        """The slots of those ranks, host by host."""
        tensor, each = self.training.tensor, self.training.data * self.training.context
        return [slots[host] + rank * tensor for host in placement.hosts[chunk] for rank in range(each)]

    def _notes(self, placement: Placement, blocks: list[int]) -> Iterator[str]:
        if min(blocks) < max(blocks):
            yield f"{self.architecture.layers} layers on {len(blocks)} stages: {min(blocks)} to {max(blocks)} each"
        sequences = placement.microbatches * self.training.microbatch * self.training.data
        if self.training.global_batch not in (None, sequences):
            yield (
                f"{placement.microbatches} microbatches of {self.training.microbatch} in {self.training.data} copies "
                f"make a batch of {sequences} sequences, not {self.training.global_batch}"
            )
        if self.training.recompute == "selective" and self.training.flash_attention:
            yield "selective recomputation changes nothing: flash attention computes its scores again anyway"
        if self.training.recompute == "full":
            yield "whole layers are recomputed: between an I and its W apart more is held than is counted here"
        yield from self.architecture.assumed


def architecture_of(model: Model, name: str) -> tuple[Architecture, Training]:
    """A shipped model as an architecture, and its sequences and batch.

    Raises
    ------
    UsageError
        If the model gives no vocabulary, widths that its heads do not divide, elements of other than 16 bits, or fewer
        bytes a parameter than those of its weight and gradient.

    Models without a gate are taken to drop out, as GPT does.
    """
    if not model.vocabulary:
        raise UsageError(f"{name} has no embedding and no head: give its file a key 'vocabulary'")
    width = model.hidden // model.heads
    if width * model.heads != model.hidden:
        raise UsageError(f"{name}: {model.heads} heads do not divide a width of {model.hidden}")
    groups, part_of_head = divmod(model.key_value_width or model.hidden, width)
    if part_of_head or model.heads % groups:
        raise UsageError(
            f"{name}: key_value_width {model.key_value_width} must be a number of heads of width {width} that divides "
            f"{model.heads}"
        )
    if model.bytes_per_element != ELEMENT:
        raise UsageError(
            f"{name}: bytes_per_element {model.bytes_per_element} is not modelled layer by layer, where weights and "
            f"activations have {ELEMENT} bytes"
        )
    state = model.bytes_per_parameter - ELEMENT - model.bytes_per_gradient
    if state < 0:
        raise UsageError(
            f"{name}: bytes_per_parameter {model.bytes_per_parameter} is less than the weight's {ELEMENT} and "
            f"bytes_per_gradient {model.bytes_per_gradient} together"
        )
    architecture = Architecture(
        name,
        model.blocks,
        model.hidden,
        model.heads,
        groups,
        width,
        model.feed_forward,
        model.vocabulary,
        model.gated,
        dropout=not model.gated,
        bytes_per_gradient=model.bytes_per_gradient,
        bytes_per_state=state,
    )
    training = Training(model.sequence, flash_attention=model.flash_attention)
    return architecture, training
