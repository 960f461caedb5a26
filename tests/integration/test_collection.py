"""A suite file as pytest sees it: ids, marks, selection, and errors that name file, line and key."""

from __future__ import annotations

import pytest

SUITE = """\
suite: small
markers: [blackwell]
requires: {gpus: 8, compute_capability: "12.0", topology: pcie}
server:
  engine: sglang
  model: moonshotai/Kimi-K2.5
  args: {tp-size: 8}
workloads:
  decode: {concurrency: 1, requests: 1, input_tokens: 16, output_tokens: 32}
  batch_c8: {concurrency: 8, requests: 8, input_tokens: 16, output_tokens: 32}
configs:
  - id: no-spec
  - id: torch-symm-mem
    args: {enable-torch-symm-mem: true}
    known: sglang-torch-symm-mem
  - id: tuned
    markers: [slow]
    args: {page-size: 64}
    compare_to: no-spec
    gate: none
"""


@pytest.fixture
def suites(pytester):
    """Write a suite file under `suites/`."""

    def write(text=SUITE, name="small.yaml"):
        path = pytester.path / "suites" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    return write


def ids(result):
    return [line.rpartition("::")[2] for line in result.outlines if "::test_serving[" in line]


def test_one_test_a_config_and_workload(pytester, suites):
    suites()
    result = pytester.runpytest("suites", "--collect-only", "-q")
    assert ids(result) == [
        f"test_serving[{config}-{workload}]"
        for config in ("no-spec", "torch-symm-mem", "tuned")
        for workload in ("decode", "batch_c8")
    ]


def test_a_case_lies_where_its_config_does(pytester, suites):
    """For warnings, JUnit and `-v`, which would show the test function of this package."""
    lines = suites().read_text().splitlines()
    items, _ = pytester.inline_genitems("suites")
    places = {item.name: item.location[:2] for item in items}
    assert places["test_serving[tuned-decode]"] == ("suites/small.yaml", lines.index("  - id: tuned"))


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        (["-m", "blackwell"], 6),
        (["-m", "slow"], 2),
        (["-m", "dead_end"], 2),
        (["-m", 'dead_end(kind="start")'], 2),
        (["-m", 'dead_end(kind="garbage")'], 0),
        (["-k", "tuned and decode"], 1),
        (["-k", "no-spec"], 2),
    ],
)
def test_selection(pytester, suites, arguments, count):
    suites()
    result = pytester.runpytest("suites", "--collect-only", "-q", *arguments)
    assert len(ids(result)) == count


def test_a_node_id_selects_one_case(pytester, suites):
    suites()
    result = pytester.runpytest("suites/small.yaml::test_serving[tuned-decode]", "--collect-only", "-q")
    assert ids(result) == ["test_serving[tuned-decode]"]


def test_the_names_of_the_users_own_tests_are_their_affair(pytester, suites):
    suites()
    result = pytester.runpytest("suites", "--collect-only", "-q", "-o", "python_functions=check_*")
    assert len(ids(result)) == 6


def test_collecting_looks_at_no_hardware(pytester, suites):
    suites()
    pytester.makeconftest(
        """
        import sys
        def pytest_sessionfinish():
            heavy = {"pynvml", "numpy", "scipy", "requests", "psutil"} & set(sys.modules)
            print("HEAVY", sorted(heavy))
        """
    )
    result = pytester.runpytest_subprocess("suites", "--collect-only", "-q", "-s")
    result.stdout.fnmatch_lines(["HEAVY [[][]]"])


def test_yaml_elsewhere_is_none_of_our_business(pytester):
    (pytester.path / "other").mkdir()
    (pytester.path / "other" / "config.yaml").write_text("[not: a: suite")
    result = pytester.runpytest("other", "--collect-only", "-q")
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED


def test_the_ini_file_names_further_suites(pytester):
    pytester.makeini("[pytest]\ngpuserve_suites = bench/*.yaml\n")
    (pytester.path / "bench").mkdir()
    (pytester.path / "bench" / "mine.yaml").write_text(SUITE)
    result = pytester.runpytest("bench", "--collect-only", "-q")
    assert len(ids(result)) == 6


BAD = {
    "unknown key": ("workloads:", "worklods:", "small.yaml:8:", "workloads"),
    "wrong type": ("requests: 1,", "requests: many,", "small.yaml:9:", "requests"),
    "duplicate ids": ("id: tuned", "id: no-spec", "small.yaml:16", "no-spec"),
    "unknown engine": ("engine: sglang", "engine: sglnag", "small.yaml:5", "sglang"),
    "dangling known": (
        "sglang-torch-symm-mem",
        "sglang-torch-sym-mem",
        "small.yaml:15",
        "sglang-torch-symm-mem",
    ),
    "dangling compare_to": ("compare_to: no-spec", "compare_to: no-spc", "small.yaml:19", "no-spec"),
    "unregistered marker": ("markers: [blackwell]", "markers: [blackwel]", "small.yaml:2", "blackwell"),
    "a tab": ("  model:", "\tmodel:", "small.yaml:6", "tab"),
    "bad regular expression": (
        "known: sglang-torch-symm-mem",
        "xfail: {kind: start, reason: r, match: {message: '('}}",
        "small.yaml:15",
        "message",
    ),
    "a bare number in env": (
        "gate: none",
        "gate: none\n    env: {NCCL_P2P_DISABLE: 1}",
        "small.yaml:21",
        "quote",
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_wrong_suite_is_a_collection_error_that_names_the_place(pytester, suites, kind):
    old, new, place, word = BAD[kind]
    assert old in SUITE
    suites(SUITE.replace(old, new, 1))
    result = pytester.runpytest("suites", "--collect-only", "-q")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    text = result.stdout.str()
    assert place in text, text
    assert word in text, text
    assert "Traceback" not in text
    assert ".py:" not in text


@pytest.mark.parametrize(
    "text",
    ["", "# nothing\n", "suite: x\n", "a: &a [x, x]\nb: &b [*a, *a]\n" * 1 + "c: " + "[" * 60 + "]" * 60],
    ids=["empty", "comment", "no configs", "deep"],
)
def test_a_file_that_is_no_suite(pytester, suites, text):
    suites(text)
    result = pytester.runpytest("suites", "--collect-only", "-q")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert "small.yaml" in result.stdout.str()
    assert "Traceback" not in result.stdout.str()


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("import nowhere_to_be_found\n", "cannot be loaded: ModuleNotFoundError"),
        ("class Theirs:\n    name = 'theirs'\n", "their_module.Theirs lacks ready, "),
    ],
)
def test_other_peoples_engines_are_loaded_when_a_suite_is_collected(pytester, suites, code, told):
    suites(
        SUITE.replace("engine: sglang", "engine: theirs").replace("    known: sglang-torch-symm-mem\n", "")
    )
    pytester.makepyfile(their_module=code)
    installed = pytester.mkdir("their_package-1.dist-info")
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: their-package\nVersion: 1\n")
    (installed / "entry_points.txt").write_text("[pytest_gpuserve.engines]\ntheirs = their_module:Theirs\n")
    pytester.syspathinsert()
    result = pytester.runpytest("suites", "--collect-only", "-q")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    text = result.stdout.str()
    assert "small.yaml:12: the engine 'theirs' of their-package " in text and told in text, text
    assert "Traceback" not in text


def test_a_yaml_bomb_is_refused(pytester, suites):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    suites("\n".join(lines))
    result = pytester.runpytest("suites", "--collect-only", "-q")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert "small.yaml" in result.stdout.str()


def test_two_suites_of_one_name(pytester, suites):
    suites(name="one.yaml")
    suites(name="two.yaml")
    result = pytester.runpytest("suites", "--collect-only", "-q")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["suites/two.yaml:1: suite: the name 'small' is taken by suites/one.yaml; *"])
    assert len(ids(result)) == 6, "the first of them stays"


def test_yaml_1_2_booleans(pytester, suites):
    # YAML 1.1 would read `no` as False and the case ids would be garbled.
    suites(SUITE.replace("id: tuned", "id: no"))
    result = pytester.runpytest("suites", "--collect-only", "-q", "-k", "[no-decode]")
    assert "test_serving[no-decode]" in ids(result)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--gpuserve-simulate", "suites"], "suites"),
        (["suites", "--gpuserve-simulate=0.5.14"], "0.5.14"),
        (["suites", "--gpuserve-perturb", "slowdown=8%"], "--gpuserve-simulate"),
        (["suites", "--gpuserve-simulate", "--gpuserve-perturb", "explode=8%"], "explode"),
        (["suites", "--gpuserve-simulate", "--gpuserve-update-baselines"], "never stored"),
        (["suites", "--gpuserve-launches", "0"], "--gpuserve-launches"),
        (["suites", "--gpuserve-simulate", "--gpuserve-perturb", "opens:tunned"], "did you mean 'tuned'?"),
        (["suites", "--gpuserve-wait", "soon"], "--gpuserve-wait: 'soon' is no duration"),
        (["suites", "--gpuserve-simulate="], "'' is no engine==version"),
        (["suites", "--gpuserve-engine-python", "sglan=/x"], "no engine 'sglan'; there are: "),
        (["suites", "--gpuserve-engine-python", "vllm="], "names no interpreter"),
    ],
)
def test_usage_errors_name_what_is_wrong(pytester, suites, arguments, says):
    suites()
    result = pytester.runpytest(*arguments, "--collect-only")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert says in result.stderr.str()
    assert "Traceback" not in result.stderr.str()


def test_a_path_may_hold_an_equals_sign(pytester, suites):
    suites()
    result = pytester.runpytest("suites", "--collect-only", "-q", "--gpuserve-engine-python=/opt/a=b/python")
    assert result.ret == pytest.ExitCode.OK


def test_a_usage_error_that_only_workers_can_find_is_told(pytester, suites):
    suites()
    arguments = ["--gpuserve-simulate", "--gpuserve-perturb", "opens:tunned", "-n2"]
    result = pytester.runpytest_subprocess("suites", *arguments)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    text = result.stdout.str()
    assert "no suite of this run has a config 'tunned'; did you mean 'tuned'?" in text
    assert "INTERNALERROR" not in text
