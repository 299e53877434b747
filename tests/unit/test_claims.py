"""The source paper's findings: every answer comes from its figures, and known facts come out."""

from __future__ import annotations

import json
import subprocess
import sys
from fractions import Fraction

import pytest

from explorer.config import catalogue
from explorer.sweep.claims import CLAIMS, SYSTEMS, Verdict, longer, run


@pytest.mark.parametrize("name", CLAIMS)
def test_a_claim_has_an_answer_and_its_figures(name: str) -> None:
    claim = CLAIMS[name]()
    assert claim.name == name
    assert claim.answer and claim.said
    assert claim.rows and all(len(row) == len(claim.header) for row in claim.rows)


def test_verdicts() -> None:
    """Each follows from facts that other tests pin down: pins that a change of costs or semantics must show."""
    found = {name: claim().verdict for name, claim in CLAIMS.items()}
    assert found["1f1b-peak"] is Verdict.CONFIRMED
    assert found["chimera-formula"] is Verdict.CONFIRMED
    assert found["rank-changes"] is Verdict.CONFIRMED
    assert found["gpipe-1f1b-time"] is Verdict.CONDITIONAL
    assert found["chimera-region"] is Verdict.CONDITIONAL
    assert found["hanayo-chimera"] is Verdict.CONDITIONAL


def test_the_formula_and_the_table_of_chimera() -> None:
    """(P-2)/(2N+P-2) = 6/38; with B = 2F direct concatenation idles (P-2)B + (K-1)(P-2)(B-F) = 18 of 66."""
    rows = {name: ours for name, ours, _ in CLAIMS["chimera-formula"]().rows}
    assert rows["formula (P-2)/(2N+P-2)"] == f"{100 * 6 / 38:.1f}%" == rows["table, backward = forward"]
    assert rows["table, backward = 2 forwards"] == f"{100 * 18 / 66:.1f}%"


def test_where_sends_keep_the_sender_gpipe_and_1f1b_are_equal_but_for_one_transfer() -> None:
    """Blocking: GPipe takes one transfer more, whatever the number of microbatches (SCHEDULES of 504 cases)."""
    system = ("slow", "fast")
    gpipe, other = (run(name, system, 8, 8, "blocking").makespan for name in ("gpipe", "1f1b"))
    link = catalogue.load_system(SYSTEMS[system]).links.network
    assert link is not None and link.bandwidth is not None and link.latency is not None
    transfer = 32 * 4096 * 4096 * 2 / link.bandwidth + link.latency
    assert abs(gpipe - other - transfer) < Fraction(1, 10**6)


def test_the_nine_systems_scale_one() -> None:
    middle = catalogue.load_system("paper-h100")
    factor = {"slow": Fraction(1, 10), "mid": Fraction(1), "fast": Fraction(10)}
    for (network, compute), name in SYSTEMS.items():
        system = catalogue.load_system(name)
        assert system.compute.matrix == middle.compute.matrix * factor[compute]
        ours, theirs = system.links.network, middle.links.network
        assert ours is not None and theirs is not None and ours.bandwidth and theirs.bandwidth and ours.latency
        assert ours.bandwidth == theirs.bandwidth * factor[network]
        assert ours.latency * factor[network] == theirs.latency


def test_only_the_ratio_of_compute_and_network_matters_where_bandwidth_rules() -> None:
    pairs = [
        longer(run("hanayo", system, 8, 8, options=(("waves", 2),)), run("chimera", system, 8, 8))
        for system in (("slow", "slow"), ("mid", "mid"), ("fast", "fast"))
    ]
    assert max(pairs) - min(pairs) < 1e-3


def test_the_command() -> None:
    def explorer(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-m", "explorer", *words], capture_output=True, text=True, check=False)

    said = json.loads(explorer("claims", "chimera-formula", "--json").stdout)
    assert "secondary" in said["source"]
    assert [claim["verdict"] for claim in said["claims"]] == ["confirmed"]
    shown = explorer("claims", "hanayo-chimera").stdout
    assert "only under named conditions" in shown and "(secondary)" in shown and "-2.3%" in shown
    wrong = explorer("claims", "hanayo")
    assert (wrong.returncode, "no claim is called" in wrong.stderr) == (2, True)
