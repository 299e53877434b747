"""A user's own schedules: files and plug-ins, and a clear sentence for everything that can be wrong with them."""

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from explorer.core.errors import Inapplicable, UsageError
from schedules import registry, user

GOOD = '''
from explorer.core.errors import Inapplicable
from explorer.core.op import B, F
from explorer.core.placement import linear
from explorer.core.schedule import Schedule


def build(devices, microbatches, *, reverse=False):
    """All forwards, then all backwards."""
    if microbatches > 9:
        raise Inapplicable("at most 9 microbatches")
    ms = range(microbatches)
    last = ms[::-1] if reverse else ms
    orders = [[F(s, m) for m in ms] + [B(s, m) for m in last] for s in range(devices)]
    return Schedule.from_orders(linear(devices, microbatches), orders)
'''


@pytest.fixture
def write(tmp_path: Path):
    def write(text: str) -> str:
        path = tmp_path / "my_schedule.py"
        path.write_text(text, encoding="utf-8")
        return str(path)

    return write


def test_a_function_in_a_file_is_a_schedule_like_any_other(write) -> None:
    schedule = user.from_file(write(GOOD) + ":build")
    assert schedule.options == {"reverse": False}
    assert schedule.summary == "All forwards, then all backwards."
    assert [str(op) for op in schedule(1, 2, reverse=True).order(0)] == ["0F0", "0F1", "0B1", "0B0"]
    with pytest.raises(UsageError, match="has no option 'revers'; did you mean 'reverse'"):
        schedule(1, 2, revers=True)


def test_its_own_refusals_pass_through(write) -> None:
    with pytest.raises(Inapplicable, match=r"^at most 9 microbatches$"):
        user.from_file(write(GOOD) + ":build")(1, 10)


def test_it_may_plan_with_the_costs_of_the_run(write) -> None:
    text = GOOD.replace("*, reverse=False", "*, recipe=None, reverse=False")
    schedule = user.from_file(write(text) + ":build")
    assert schedule.plans_with_costs
    assert schedule.options == {"reverse": False}


@pytest.mark.parametrize(
    ("subject", "is_one"),
    [("./a.py:build", True), ("a.py", True), ("C:\\x\\a.py:f", True), ("1f1b", False), ("a.json", False)],
)
def test_references_are_told_from_names_and_tables(subject: str, is_one: bool) -> None:
    assert user.is_reference(subject) is is_one


@pytest.mark.parametrize("reference", ["a.py", "a:build", "a.py:"])
def test_a_reference_names_a_file_and_a_function(reference: str) -> None:
    with pytest.raises(UsageError):
        user.from_file(reference)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no file .*nowhere\.py"):
        user.from_file(f"{tmp_path}/nowhere.py:build")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD.replace("def build", "def built"), "has no function 'build'; did you mean 'built'"),
        ("x = 1\n", "has no function 'build'; it has no function at all"),
        ("build = 3\n", "is no function but int"),
        ("def build(devices:\n", "fails when it is loaded: SyntaxError"),
        ("\nraise ValueError('no')\n", r"fails when it is loaded: ValueError: no \(line 2\)"),
        ("raise SystemExit(3)\n", "fails when it is loaded: SystemExit: 3"),
        ("def build(n):\n    pass\n", r"must take \(devices, microbatches, ...\), it takes \(n\)"),
        ("def build(devices, microbatches, **more):\n    pass\n", r"options one by one, it takes \*\*more"),
        ("def build(devices, microbatches, v):\n    pass\n", "needs a default for its option 'v'"),
        ("build = dict\n", "does not say which arguments it takes"),
    ],
)
def test_what_cannot_be_loaded_says_why(write, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        user.from_file(write(text) + ":build")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return [1]", "must return a Schedule .*, got list"),
        ("return None", "must return a Schedule .*, got NoneType"),
        ("\n    return 1 / 0", r"fails: ZeroDivisionError: division by zero \(line 3\)"),
        ("raise SystemExit", "fails: SystemExit"),
    ],
)
def test_what_fails_when_it_builds_says_where(write, body: str, message: str) -> None:
    schedule = user.from_file(write(f"def build(devices, microbatches):\n    {body}\n") + ":build")
    with pytest.raises(UsageError, match=message):
        schedule(2, 2)


def test_a_file_that_registers_its_schedule_is_run_only_once(write) -> None:
    text = GOOD.replace(
        "def build", "from schedules import named\n\n\n@named('own-a', summary='', source='')\ndef build"
    )
    reference = write(text) + ":build"
    try:
        assert user.from_file(reference) is user.from_file(reference) is registry.find("own-a")
    finally:
        registry._REGISTRY.pop("own-a", None)


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Pretend that entry points are installed; forget what they registered."""
    monkeypatch.syspath_prepend(tmp_path)
    known = dict(registry._REGISTRY)

    def pretend(module: str, text: str, **points: str) -> None:
        (tmp_path / f"{module}.py").write_text(text, encoding="utf-8")
        found = tuple(EntryPoint(name, f"{module}:{attribute}", user.GROUP) for name, attribute in points.items())
        monkeypatch.setattr(user, "entry_points", lambda group: found if group == user.GROUP else ())

    yield pretend
    registry._REGISTRY.clear()
    registry._REGISTRY.update(known)


def test_a_plugin_is_found_by_its_name(plugins) -> None:
    plugins("good_plugin", GOOD, mine="build")
    user.install_plugins()
    user.install_plugins()
    assert registry.find("mine")(2, 2).microbatches == 2


@pytest.mark.parametrize(
    ("module", "point", "message"),
    [
        ("bad_plugin_a", {"mine": "missing"}, "plug-in 'mine' of .* cannot be loaded: AttributeError"),
        ("bad_plugin_b", {"1f1b": "build"}, "two schedules are called '1f1b'"),
        ("bad_plugin_c", {"mine": "F"}, r"must take \(devices, microbatches"),
    ],
)
def test_a_broken_plugin_is_named(plugins, module: str, point: dict[str, str], message: str) -> None:
    plugins(module, GOOD, **point)
    with pytest.raises(UsageError, match=message):
        user.install_plugins()
