"""Files that users have: what is read of them, and what is refused where."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from explorer.core.errors import ExplorerError, Malformed, UsageError
from explorer.costs.layers import parameters
from explorer.costs.reading import read

LLAMA = {
    "model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "intermediate_size": 14336,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "tie_word_embeddings": False,
}  # fmt: skip
CONFIGS: dict[str, tuple[dict[str, Any], float]] = {
    # Sizes of the public config.json files, and the parameters that the models' cards give.
    "llama3-8b": (LLAMA, 8.03e9),
    "llama3-70b": (
        LLAMA | {"num_hidden_layers": 80, "hidden_size": 8192, "intermediate_size": 28672, "num_attention_heads": 64},
        70.55e9,
    ),
    "mixtral-8x7b": (
        LLAMA | {"model_type": "mixtral", "vocab_size": 32000, "num_local_experts": 8, "num_experts_per_tok": 2},
        46.70e9,
    ),
    "qwen3-30b-a3b": (
        LLAMA
        | {
            "model_type": "qwen3_moe", "num_hidden_layers": 48, "hidden_size": 2048, "intermediate_size": 6144,
            "moe_intermediate_size": 768, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936,
            "num_experts": 128, "num_experts_per_tok": 8, "decoder_sparse_step": 1, "mlp_only_layers": [],
        },
        30.53e9,
    ),
    "deepseek-v3": (
        {
            "model_type": "deepseek_v3", "num_hidden_layers": 61, "hidden_size": 7168, "intermediate_size": 18432,
            "moe_intermediate_size": 2048, "num_attention_heads": 128, "num_key_value_heads": 128,
            "vocab_size": 129280, "n_routed_experts": 256, "num_experts_per_tok": 8, "n_shared_experts": 1,
            "first_k_dense_replace": 3, "moe_layer_freq": 1, "num_nextn_predict_layers": 1, "q_lora_rank": 1536,
            "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
        },
        671.0e9,
    ),
    "gpt2": (
        {"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "n_positions": 1024, "vocab_size": 50257},
        124.4e6,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CONFIGS)
def test_models_have_their_published_parameters(name: str, tmp_path: Path) -> None:
    given, published = CONFIGS[name]
    (tmp_path / "config.json").write_text(json.dumps(given))
    for path in (tmp_path, tmp_path / "config.json"):
        architecture = read(str(path)).architecture
        assert architecture is not None
        assert parameters(architecture) == pytest.approx(published, rel=1e-3)
        assert architecture.assumed == ()


def test_deepseek_has_dense_first_layers_and_a_prediction_layer(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS["deepseek-v3"][0]))
    architecture = read(str(tmp_path)).architecture
    assert architecture is not None
    assert architecture.expert_layers == frozenset(range(3, 61))
    assert architecture.prediction_layers == 1
    assert architecture.latent is not None


def test_infinite_numbers_of_what_is_not_read_are_passed_over(tmp_path: Path) -> None:
    """``transformers`` writes such for Mamba layers: ``"time_step_limit": [0.0, Infinity]``."""
    (tmp_path / "config.json").write_text(json.dumps(LLAMA | {"limit": float("nan"), "other": [0.0, float("inf")]}))
    architecture = read(str(tmp_path)).architecture
    assert architecture is not None
    assert architecture.hidden == 4096


def test_an_unknown_type_says_what_is_assumed(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA | {"model_type": "novel"}))
    architecture = read(str(tmp_path)).architecture
    assert architecture is not None
    assert "type novel, which is not known: assumed are a gated MLP" in architecture.assumed[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"hidden_size": 1,}', "config.json:1:19: not JSON"),
        ("[]", "a config.json is an object"),
        ('{"hidden_size": 64, "model_type": "x"}', "of type 'x' needs the keys num_hidden_layers, num_attention_heads"),
        (json.dumps(LLAMA | {"hidden_size": "4096"}), "hidden_size must be a whole number of at least 1, got '4096'"),
        (json.dumps(LLAMA | {"hidden_size": True}), "hidden_size must be a whole number"),
        (json.dumps(LLAMA | {"num_attention_heads": 30}), "30 heads do not divide a width of 4096"),
        (json.dumps(LLAMA | {"num_key_value_heads": 5}), "5 key-value heads do not divide 32"),
        (json.dumps({k: v for k, v in LLAMA.items() if k != "intermediate_size"}), "'intermediate_size' is missing"),
        (json.dumps(LLAMA | {"tie_word_embeddings": "false"}), "tie_word_embeddings must be true or false"),
        (json.dumps(LLAMA | {"n_layer": 12}), "n_layer is 12, and another name of it 32"),
        ("[" * 100_000, "nested too deeply"),
        (
            json.dumps(LLAMA | {"hidden_size": float("nan")}),
            "hidden_size must be a whole number of at least 1, got nan",
        ),
        (json.dumps(LLAMA | {"n_layer": float("nan")}), "n_layer is nan, and another name of it 32"),
        (
            json.dumps(LLAMA | {"num_nextn_predict_layers": 10**9}),
            "at most 10000 layers of multi-token prediction, got 1000000000",
        ),
        *[
            (
                json.dumps(CONFIGS["qwen3-30b-a3b"][0] | {"mlp_only_layers": [0, wrong]}),
                f"mlp_only_layers must be numbers of layers, from 0, got {wrong!r}",
            )
            for wrong in ("x", None, {}, [1], -1, True, 1.0)
        ],
    ],
)
def test_broken_configs_say_where(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ExplorerError) as caught:
        read(str(tmp_path / "config.json"))
    assert said in str(caught.value)


SCRIPT = """#!/bin/bash
# GPT-3 175B, as in Megatron-LM's example
TP=8
MODEL_ARGS=(
    --num-layers 96
    --hidden-size 12288
    --num-attention-heads 96
    --seq-length 2048 --max-position-embeddings 2048
)
torchrun pretrain_gpt.py ${MODEL_ARGS[@]} \\
    --tensor-model-parallel-size $TP --pipeline-model-parallel-size ${PP:-16} \\
    --micro-batch-size 1 --global-batch-size 1536 --sequence-parallel --use-distributed-optimizer \\
    --recompute-activations
"""


def test_a_shell_script_of_megatron(tmp_path: Path) -> None:
    path = tmp_path / "train.sh"
    path.write_text(SCRIPT)
    launch = read(str(path))
    assert launch.architecture is not None
    assert launch.training is not None
    assert (launch.architecture.layers, launch.architecture.feed_forward, launch.pipeline) == (96, 49152, 16)
    training = launch.training
    assert (training.tensor, training.microbatch, training.global_batch, training.recompute) == (
        8,
        1,
        1536,
        "selective",
    )
    assert training.sequence_parallel
    assert training.distributed_optimizer
    assert "no --vocab-size: assumed is GPT-2's" in launch.architecture.assumed[0]


def test_a_yaml_map_of_arguments(tmp_path: Path) -> None:
    path = tmp_path / "model_config.yaml"
    path.write_text(
        "MODEL_ARGS:\n  --num-layers: 12\n  --hidden-size: 512\n  --num-attention-heads: 8\n  --seq-length: 1024\n"
        "  --vocab-size: 1000\n  --swiglu: true\n  --untie-embeddings-and-output-weights: false\n"
        "  --pipeline-model-parallel-size: 4\n"
    )
    launch = read(str(path))
    assert launch.architecture is not None
    assert launch.architecture.gated
    assert launch.architecture.tied
    assert launch.pipeline == 4


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            ("--num-layers 96", "--num-layers many"),
            "train.sh:5: --num-layers must be a positive whole number, got 'many'",
        ),
        (("--hidden-size 12288", ""), "the argument --hidden-size is missing"),
        (("TP=8", ""), "it is a variable that the file does not set"),
        (("--hidden-size", "'--hidden-size"), "train.sh:6: cannot be read as shell words"),
    ],
)
def test_broken_arguments_say_where(change: tuple[str, str], said: str, tmp_path: Path) -> None:
    path = tmp_path / "train.sh"
    path.write_text(SCRIPT.replace(*change))
    with pytest.raises(Malformed) as caught:
        read(str(path))
    assert said in str(caught.value)


def test_layers_that_would_be_dropped_are_told(tmp_path: Path) -> None:
    """80 layers, 16 devices, two a virtual stage: 64 would run (NVIDIA/Megatron-LM#468)."""
    path = tmp_path / "train.sh"
    path.write_text(SCRIPT.replace("--num-layers 96", "--num-layers 80 --num-layers-per-virtual-pipeline-stage 2"))
    with pytest.raises(UsageError, match="only 64 would be placed; legal are 1, 5 a virtual stage"):
        read(str(path))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("--tensor-model-parallel-size", "--tensor-model-paralel-size"), "did you mean --tensor-model-parallel-size"),
        (("--num-layers 96", "--num-layers 90"), "90 layers do not divide into 16 x 1 stages"),
        (
            ("--sequence-parallel", "--account-for-loss-in-pipeline-split"),
            "make 97, no multiple of 16 stages",
        ),
    ],
)
def test_what_would_be_missed_silently_is_told(change: tuple[str, str], said: str, tmp_path: Path) -> None:
    path = tmp_path / "train.sh"
    path.write_text(SCRIPT.replace(*change))
    with pytest.raises(ExplorerError, match=said):
        read(str(path))


def test_prediction_layers_and_positions_of_megatron(tmp_path: Path) -> None:
    path = tmp_path / "train.sh"
    layout = "--pipeline-model-parallel-layout 'Et*3|(t*3|)*30,t*3mL' --mtp-num-layers 1 --position-embedding-type rope"
    path.write_text(SCRIPT.replace("--sequence-parallel", layout))
    launch = read(str(path))
    assert launch.architecture is not None
    assert launch.architecture.prediction_layers == 1
    assert launch.architecture.positions == 0
    assert launch.virtual == 2
    assert launch.pieces is not None
    assert len(launch.pieces) == 32


def test_ends_that_count_as_layers(tmp_path: Path) -> None:
    """--account-for-*-in-pipeline-split: 94 layers and 2 for the ends are 6 a stage."""
    path = tmp_path / "train.sh"
    both = "--account-for-loss-in-pipeline-split --account-for-embedding-in-pipeline-split"
    path.write_text(SCRIPT.replace("--sequence-parallel", both).replace("--num-layers 96", "--num-layers 94"))
    pieces = read(str(path)).pieces
    assert pieces is not None
    assert [len(piece.layers) for piece in pieces] == [5, *[6] * 14, 5]
    path.write_text(path.read_text().replace("94", "94 --num-layers-per-virtual-pipeline-stage 3"))
    launch = read(str(path))
    assert launch.pieces is not None
    assert [len(piece.layers) for piece in launch.pieces] == [2, *[3] * 30, 2]
    assert launch.virtual == 2


def test_latent_attention_of_megatron() -> None:
    """Megatron-LM's arguments of DeepSeek-V3 give the same architecture as its config.json."""
    words = (
        "--num-layers 61 --hidden-size 7168 --ffn-hidden-size 18432 --num-attention-heads 128 --vocab-size 129280 "
        "--swiglu --untie-embeddings-and-output-weights --position-embedding-type rope --seq-length 4096 "
        "--multi-latent-attention --q-lora-rank 1536 --kv-lora-rank 512 --num-experts 256 --moe-router-topk 8 "
        "--moe-ffn-hidden-size 2048 --moe-shared-expert-intermediate-size 2048 --moe-layer-freq '[0]*3+[1]*58' "
        "--mtp-num-layers 1 --hidden-dropout 0"
    )
    architecture = read(words).architecture
    assert architecture is not None
    ships = read("deepseek-v3").architecture
    assert ships is not None
    assert replace(architecture, name="", head_width=1) == replace(ships, name="", head_width=1)


TITAN = """
[model]
name = "llama3"
flavor = "70B"

[training]
local_batch_size = 16
seq_len = 8192

[parallelism]
data_parallel_shard_degree = 4
tensor_parallel_degree = 8
pipeline_parallel_degree = 4
pipeline_parallel_schedule = "Interleaved1F1B"
pipeline_parallel_microbatch_size = 2

[activation_checkpoint]
mode = "full"
"""


def test_torchtitan(tmp_path: Path) -> None:
    path = tmp_path / "train.toml"
    path.write_text(TITAN)
    launch = read(str(path))
    assert launch.architecture is not None
    assert launch.training is not None
    assert (launch.architecture.layers, launch.pipeline, launch.virtual) == (80, 4, 2)
    assert launch.schedule == "interleaved-1f1b"
    training = launch.training
    assert (training.sequence, training.microbatch, training.global_batch, training.data) == (8192, 2, 64, 4)
    assert (training.tensor, training.recompute, training.sharded_parameters) == (8, "full", True)
    assert launch.pieces is not None
    # The ends count for a layer each: 82 on 8 stages.
    counts = [len(piece.layers) for piece in launch.pieces]
    assert (counts[0], counts[-1], sum(counts)) == (10, 9, 80)
    assert max(counts) - min(counts) <= 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (('flavor = "70B"', 'flavor = "71B"'), "sizes of llama3 71B are not known; known: llama3 8B"),
        (("Interleaved1F1B", "Interleved1F1B"), "no schedule is called 'Interleved1F1B'"),
        (("size = 2", "size = 3"), "local batch of 16 is no whole number of microbatches of 3"),
        (("seq_len = 8192", "seq_len = 0"), "seq_len must be at least 1, got 0"),
        (("seq_len = 8192", "seq_len = '8k'"), "seq_len must be a whole number"),
        (('mode = "full"', 'mode = "most"'), "recompute must be one of none, selective, full"),
        (("[training]", "[training"), "not TOML"),
    ],
)
def test_broken_torchtitan_says_where(change: tuple[str, str], said: str, tmp_path: Path) -> None:
    path = tmp_path / "train.toml"
    path.write_text(TITAN.replace(*change))
    with pytest.raises(ExplorerError, match=said):
        read(str(path))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("--tp 2", "did you mean --tensor-model-parallel-size"),
        ("--recompute-method block", "recomputes only some layers, which is not modelled"),
        ("--expert-tensor-parallel-size 1", "other splits of experts are not modelled"),
        ("--num-layers-per-virtual-pipeline-stage 3 --decoder-first-pipeline-num-layers 3", "goes with --num-virtual"),
        ("--num-attention-heads 97", "97 heads do not divide a width of 12288"),
        ("--num-layers 900000000", "at most 10000 layers"),
        ("--mtp-num-layers 900000000", "at most 10000 layers of multi-token prediction"),
        ("--num-experts 8 --moe-layer-freq [1]*99999999999", "tells of 99999999999 layers, and there are 96"),
        ("--num-experts 8 --moe-layer-freq [0,1]*48+[1]", "tells of 97 layers, and there are 96"),
        ("--recompute-method bogus", "--recompute-method must be uniform or block, got 'bogus'"),
        ("--recompute-method uniform", "goes with --recompute-granularity full, not with selective"),
        ("--recompute-num-layers no", "--recompute-num-layers must be a positive whole number"),
    ],
)
def test_what_is_not_modelled_is_refused(more: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "train.sh"
    path.write_text(f"{SCRIPT.rstrip()} {more}\n")
    with pytest.raises(ExplorerError, match=said):
        read(str(path))


@pytest.mark.parametrize("granularity", ["--recompute-activations", "--recompute-granularity full"])
def test_layers_recomputed_together_are_refused(granularity: str, tmp_path: Path) -> None:
    """What is recomputed at once, and held meanwhile, would be four layers; attention alone is as ever."""
    path = tmp_path / "train.sh"
    path.write_text(SCRIPT.replace("--recompute-activations", f"{granularity} --recompute-num-layers 4"))
    if "full" in granularity:
        with pytest.raises(Malformed, match=r"train.sh:13: --recompute-num-layers 4 keeps.*not modelled; 1 is"):
            read(str(path))
        path.write_text(path.read_text().replace("layers 4", "layers 1 --recompute-method uniform"))
    training = read(str(path)).training
    assert training is not None
    assert training.recompute == ("full" if "full" in granularity else "selective")


LAYOUT = "--pipeline-model-parallel-layout 'Et*6|(t*6|)*14,t*6L'"


@pytest.mark.parametrize(
    "both",
    [
        ("--num-layers-per-virtual-pipeline-stage 3", "--num-virtual-stages-per-pipeline-rank 2"),
        (LAYOUT, "--num-virtual-stages-per-pipeline-rank 2"),
        (LAYOUT, "--num-layers-per-virtual-pipeline-stage 3"),
        (LAYOUT, "--decoder-first-pipeline-num-layers 6"),
        (LAYOUT, "--decoder-last-pipeline-num-layers 6"),
        (LAYOUT, "--account-for-embedding-in-pipeline-split"),
        (LAYOUT, "--account-for-loss-in-pipeline-split"),
        ("--decoder-first-pipeline-num-layers 6", "--account-for-embedding-in-pipeline-split"),
        ("--decoder-last-pipeline-num-layers 6", "--account-for-loss-in-pipeline-split"),
    ],
)
def test_two_ways_to_say_what_stages_hold_are_refused(both: tuple[str, str], tmp_path: Path) -> None:
    """Megatron-LM asserts against them too: megatron/training/arguments.py, uneven virtual pipeline parallelism."""
    path = tmp_path / "train.sh"
    for pair in (both, both[::-1]):
        path.write_text(f"{SCRIPT.rstrip()} {' '.join(pair)}\n")
        with pytest.raises(Malformed) as caught:
            read(str(path))
        names = [one.split()[0] for one in both]
        assert f"train.sh:13: {names[0]} and {names[1]} both say what stages hold" in str(caught.value)


def test_a_way_that_is_set_to_false_is_none(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        f"{PLAIN}  account_for_loss_in_pipeline_split: false\n  decoder_first_pipeline_num_layers: 3\n"
        "  pipeline_model_parallel_size: 4\n"
    )
    pieces = read(str(path)).pieces
    assert pieces is not None
    assert [len(piece.layers) for piece in pieces] == [3] * 4


def test_underscores_and_several_assignments_a_line(tmp_path: Path) -> None:
    path = tmp_path / "train.sh"
    path.write_text(SCRIPT.replace("TP=8", "TP=8; PP=4 # both").replace("--sequence-parallel", "--sequence_parallel"))
    launch = read(str(path))
    assert launch.training is not None
    assert (launch.training.tensor, launch.pipeline, launch.training.sequence_parallel) == (8, 4, True)


def test_yaml_with_names_of_attributes(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        "language_model:\n  num_layers: 12\n  hidden_size: 512\n  num_attention_heads: 8\n"
        "model_parallel:\n  pipeline_model_parallel_size: 4\nseq_length: 1024\n"
    )
    launch = read(str(path))
    assert launch.architecture is not None
    assert (launch.architecture.layers, launch.pipeline) == (12, 4)


PLAIN = "model:\n  num_layers: 12\n  hidden_size: 512\n  num_attention_heads: 8\n  seq_length: 1024\n"


@pytest.mark.parametrize(
    "text",
    [
        f"---\n{PLAIN}",
        f"# ---- model ----\n{PLAIN}",
        f"{PLAIN}# --num-layers 64\n",
        f"{PLAIN}more:\n  --vocab-size: 1000\n",
        PLAIN.replace("_", "-"),
        PLAIN.replace("num_layers", '"num_layers"').replace("12", '"12"'),
        PLAIN.replace("  ", "").replace("model:\n", ""),
        PLAIN.replace("\n", "\r\n"),
        PLAIN.replace("num_layers", "--num-layers"),
    ],
)
def test_plain_keys_of_yaml_are_read_whatever_is_beside_them(text: str, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_bytes(text.encode())
    architecture = read(str(path)).architecture
    assert architecture is not None
    assert (architecture.layers, architecture.hidden, architecture.heads) == (12, 512, 8)


@pytest.mark.parametrize(
    ("word", "value"),
    [
        *[(word, True) for word in ("true", "True", "YES", "on", "y", "true  # as trained")],
        *[(word, False) for word in ("false", "FALSE", "no", "Off", "n", "null", "Null", "~", "", "# not yet")],
    ],
)
@pytest.mark.parametrize("key", ["use_distributed_optimizer", "--use-distributed-optimizer"])
def test_flags_of_yaml_are_its_words_for_true_and_false(key: str, word: str, value: bool, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(f"{PLAIN}  {key}: {word}\n")
    training = read(str(path)).training
    assert training is not None
    assert training.distributed_optimizer is value


def test_null_in_yaml_is_not_given(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(f"{PLAIN}  num_experts: null\n  ffn_hidden_size:\n  recompute_granularity: ~\n")
    launch = read(str(path))
    assert launch.architecture is not None
    assert launch.training is not None
    assert launch.architecture.experts is None
    assert launch.architecture.feed_forward == 4 * 512, "Megatron-LM's default"
    assert launch.training.recompute == "none"


@pytest.mark.parametrize("word", ["maybe", "0", "1", "$FLAG", "[true]"])
def test_flags_of_yaml_that_are_neither_true_nor_false_are_refused(word: str, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(f"{PLAIN}  sequence_parallel: {word}\n")
    with pytest.raises(Malformed) as caught:
        read(str(path))
    assert f"config.yaml:6: --sequence-parallel must be true or false, got {word!r}" in str(caught.value)


@pytest.mark.parametrize(
    ("after", "value"), [("", True), ("| tee log", True), ("${MORE[@]}", True), ("2>&1", True), ("no", False)]
)
def test_what_follows_a_flag_in_a_script_may_be_the_shells(after: str, value: bool, tmp_path: Path) -> None:
    path = tmp_path / "train.sh"
    path.write_text(SCRIPT.replace("--recompute-activations", f"--multi-latent-attention {after}"))
    architecture = read(str(path)).architecture
    assert architecture is not None
    assert (architecture.latent is not None) is value


def test_files_of_no_known_format_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.txt"
    path.write_text("")
    with pytest.raises(UsageError, match="a model is read from"):
        read(str(path))
