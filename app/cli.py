"""The command line: flags, exit codes and nothing else. Heavy imports happen inside the commands."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from warpsmith import __version__
from warpsmith.app.cli_bench import bench
from warpsmith.app.cli_evaluate import evaluate
from warpsmith.app.cli_rollout import rollout
from warpsmith.app.cli_train import train
from warpsmith.app.ending import explained, fail, fail_usage, told
from warpsmith.app.options import (
    TRAINING_FORMS,
    Approve,
    ArchOpt,
    CountersChoice,
    CreditChoice,
    DeviceChoice,
    DeviceOpt,
    ExportKind,
    InputsOpt,
    JobsOpt,
    JsonlOpt,
    JsonOpt,
    MaxCallsOpt,
    MaxCostOpt,
    MaxTokensOpt,
    Mode,
    ModeOpt,
    OutOpt,
    Precision,
    PrecisionOpt,
    PriceOpt,
    ProblemArg,
    QuietOpt,
    SeedOpt,
    SetOpt,
)
from warpsmith.app.options import given as _given
from warpsmith.app.options import named as _named
from warpsmith.app.options import path_of as _path
from warpsmith.kernels.errors import UserError, WarpsmithError

_MISUSE: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
"""What a mistake in the command line raises; releases of typer keep it in different places."""


class _Group(TyperGroup):
    """The commands. What ends one from outside is told here: typer itself would end without a word."""

    def invoke(self, ctx: Any) -> Any:
        """Runs the command that was named."""
        with told():
            try:
                return super().invoke(ctx)
            finally:
                sys.stdout.flush()

    def main(self, *args: Any, **settings: Any) -> Any:
        """The whole command line; a mistake in it is told as any other, with `--json` as a document too."""
        try:
            code = super().main(*args, **settings | {"standalone_mode": False})
        except _MISUSE as error:
            error.show()
            fail_usage(error.format_message())
        except typer.Abort:
            sys.exit(1)
        sys.exit(code if isinstance(code, int) else 0)


app = typer.Typer(
    name="warpsmith",
    cls=_Group,
    help="Turns PyTorch modules into fast CUDA kernels that are verified at every step.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"warpsmith {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Turns PyTorch modules into fast CUDA kernels that are verified at every step."""


@app.command()
def optimize(
    ctx: typer.Context,
    problem: Annotated[
        str | None,
        typer.Argument(
            callback=_named,
            help="A KernelBench-style file, or module.py:callable with --inputs; - for a kernel on standard input.",
        ),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--start",
            callback=_named,
            help="A kernel to start from: folder with kernel.cu and launch.json, or .cu file.",
        ),
    ] = None,
    ref: Annotated[
        str | None,
        typer.Option("--ref", callback=_named, help="The module that says what is right, where PROBLEM does not."),
    ] = None,
    plan: Annotated[
        Path | None,
        typer.Option("--plan", parser=_path, metavar="PATH", help="launch.json of a .cu file that has none."),
    ] = None,
    device: DeviceOpt = DeviceChoice.auto,
    arch: ArchOpt = None,
    set_: SetOpt = None,
    inputs: InputsOpt = None,
    mode: ModeOpt = Mode.eval,
    precision: PrecisionOpt = Precision.exact,
    policy: Annotated[
        str,
        typer.Option(
            "--policy",
            help="builtin, random, tpe, genetic, coordinate, cost-model, transfer:PATH, slots:PATH, default, "
            "chat:MODEL[@URL][,...][;ROLE=MODEL...], or local:PATH.",
        ),
    ] = "builtin",
    budget: Annotated[int, typer.Option("--budget", min=1, help="Candidates to evaluate.")] = 64,
    verdicts: Annotated[int, typer.Option("--verdicts", min=1, help="Finalists that get the full verdict.")] = 4,
    minutes: Annotated[float | None, typer.Option("--minutes", min=0.0, help="Wall-clock budget.")] = None,
    max_cost: MaxCostOpt = None,
    max_tokens: MaxTokensOpt = None,
    max_calls: MaxCallsOpt = None,
    price: PriceOpt = None,
    counters: Annotated[
        CountersChoice,
        typer.Option("--counters", help="Full verdicts profiled with ncu on a GPU, where it is permitted (5 s each)."),
    ] = CountersChoice.best,
    resume: Annotated[
        Path | None, typer.Option("--resume", parser=_path, metavar="PATH", help="Continue this run folder.")
    ] = None,
    seed: SeedOpt = 0,
    out: OutOpt = Path("runs"),
    jobs: JobsOpt = None,
    json: JsonOpt = False,
    jsonl: JsonlOpt = False,
    quiet: QuietOpt = False,
) -> None:
    """Find the fastest verified kernels for one problem."""
    from warpsmith.app.display import make_display

    module, start = _module_and_start(problem, start, ref)
    _must_exist(module)
    display = make_display(json=json, jsonl=jsonl, quiet=quiet)
    from warpsmith.app.optimize import OptimizeSettings, run_optimize

    settings = OptimizeSettings(
        problem=module, device=device.value, arch=arch, overrides=_overrides(set_), inputs=inputs,
        mode=mode.value, precision=precision.value, policy=policy, budget=budget, verdicts=verdicts,
        minutes=minutes, max_cost=max_cost, max_tokens=max_tokens, max_calls=max_calls,
        price=tuple(price or ()),
        counters=counters.value, resume=resume, start=start, plan=plan, seed=seed, out=out, jobs=jobs,
        given=_given(ctx),
    )  # fmt: skip
    with display:
        raise typer.Exit(run_optimize(settings, display))


@app.command()
def chat(
    ctx: typer.Context,
    problem: Annotated[
        str | None,
        typer.Argument(
            callback=_named, help="As for optimize, or a .cu file with --ref; without one: -c, -r, or describe it."
        ),
    ] = None,
    continue_: Annotated[bool, typer.Option("--continue", "-c", help="Continue the session used last.")] = False,
    run: Annotated[
        str | None, typer.Option("--run", "-r", help="Continue this run (folder, name or part of it).")
    ] = None,
    approve: Annotated[
        Approve, typer.Option("--approve", help="What is asked of you; /mode changes it.")
    ] = Approve.ask,
    start: Annotated[
        str | None,
        typer.Option("--start", callback=_named, help="A kernel to start from: folder, or .cu file without a plan."),
    ] = None,
    ref: Annotated[
        str | None, typer.Option("--ref", callback=_named, help="The module that says what is right.")
    ] = None,
    device: DeviceOpt = DeviceChoice.auto,
    arch: ArchOpt = None,
    set_: SetOpt = None,
    inputs: InputsOpt = None,
    mode: ModeOpt = Mode.eval,
    policy: Annotated[str, typer.Option("--policy", help="As for optimize; /model changes it.")] = "builtin",
    budget: Annotated[int, typer.Option("--budget", min=1, help="Candidates to evaluate; /budget changes it.")] = 64,
    verdicts: Annotated[int, typer.Option("--verdicts", min=1, help="Finalists that get the full verdict.")] = 4,
    minutes: Annotated[float | None, typer.Option("--minutes", min=0.0, help="Wall-clock budget.")] = None,
    max_cost: MaxCostOpt = None,
    max_tokens: MaxTokensOpt = None,
    max_calls: MaxCallsOpt = None,
    price: PriceOpt = None,
    seed: SeedOpt = 0,
    out: OutOpt = Path("runs"),
    jobs: JobsOpt = None,
) -> None:
    """The same as optimize with a person in the loop."""
    if continue_ or run:
        _refuse_other(_given(ctx))
    if problem is not None and problem.endswith(".cu"):
        problem, start = None, start or problem
    if start is not None and (ref or problem) is None:
        raise UserError(f"{start}: name the module that says what is right with --ref MODULE.py")
    module = ref or problem
    if module is not None:
        _must_exist(module)
    from warpsmith.app.chat.start import ChatSettings, run_chat
    from warpsmith.app.optimize import OptimizeSettings

    search = OptimizeSettings(
        problem=module or "", device=device.value, arch=arch, overrides=_overrides(set_), inputs=inputs,
        mode=mode.value, policy=policy, budget=budget, verdicts=verdicts, minutes=minutes, max_cost=max_cost,
        max_tokens=max_tokens, max_calls=max_calls, price=tuple(price or ()), start=start, seed=seed, out=out,
        jobs=jobs, given=_given(ctx),
    )  # fmt: skip
    raise typer.Exit(run_chat(ChatSettings(search, mode=approve.value, last=continue_, run=run)))


@app.command()
def judge(
    problem: ProblemArg,
    candidate: Annotated[
        Path, typer.Argument(parser=_path, metavar="CANDIDATE", help="Folder with kernel.cu and launch.json.")
    ],
    device: DeviceOpt = DeviceChoice.auto,
    arch: ArchOpt = None,
    set_: SetOpt = None,
    inputs: InputsOpt = None,
    mode: ModeOpt = Mode.eval,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            parser=_path,
            metavar="PATH",
            help="Folder in which a run folder with the verdict is made (default: none).",
        ),
    ] = None,
    jobs: JobsOpt = None,
    json: JsonOpt = False,
    jsonl: JsonlOpt = False,
    quiet: QuietOpt = False,
) -> None:
    """Full verdict on a candidate that someone else wrote."""
    from warpsmith.app.display import make_display
    from warpsmith.app.judge import JudgeSettings, run_judge

    settings = JudgeSettings(problem=problem, candidate=candidate, device=device.value, arch=arch, out=out,
                             overrides=_overrides(set_), inputs=inputs, mode=mode.value, jobs=jobs)  # fmt: skip
    with make_display(json=json, jsonl=jsonl, quiet=quiet) as display:
        raise typer.Exit(run_judge(settings, display))


@app.command()
def baseline(
    problem: ProblemArg,
    device: DeviceOpt = DeviceChoice.auto,
    arch: ArchOpt = None,
    set_: SetOpt = None,
    inputs: InputsOpt = None,
    mode: ModeOpt = Mode.eval,
    max_autotune: Annotated[
        bool, typer.Option("--max-autotune", help="Also torch.compile max-autotune (minutes).")
    ] = False,
    jobs: JobsOpt = None,
    json: JsonOpt = False,
    jsonl: JsonlOpt = False,
    quiet: QuietOpt = False,
) -> None:
    """Eager, torch.compile and the naive kernel, timed."""
    from warpsmith.app.baseline import BaselineSettings, run_baseline
    from warpsmith.app.display import make_display

    settings = BaselineSettings(problem=problem, device=device.value, arch=arch, overrides=_overrides(set_),
                                inputs=inputs, mode=mode.value, max_autotune=max_autotune, jobs=jobs)  # fmt: skip
    with make_display(json=json, jsonl=jsonl, quiet=quiet) as display:
        raise typer.Exit(run_baseline(settings, display))


@app.command()
def export(
    ctx: typer.Context,
    run: Annotated[
        Path,
        typer.Argument(parser=_path, metavar="RUN", help="Run folder; for training data also one that holds some."),
    ],
    as_: Annotated[
        ExportKind,
        typer.Option(
            "--as",
            help="cu: kernel.cu and launch.json; model_new: a KernelBench ModelNew; t4: all evaluations; training data "
            "(docs/learning.md): trajectories, sft, preference, grpo.",
        ),
    ] = ExportKind.model_new,
    to: Annotated[
        Path | None,
        typer.Option(
            "--to",
            parser=_path,
            metavar="PATH",
            help="Folder to write to, or a FILE.py of model_new (default: stdout; of the others, here).",
        ),
    ] = None,
    parquet: Annotated[bool, typer.Option("--parquet", help="Training data: a Parquet file as well.")] = False,
    screened: Annotated[
        bool, typer.Option("--screened", help="Training data: a quick check is enough to count as right.")
    ] = False,
    credit: Annotated[
        CreditChoice, typer.Option("--credit", help="grpo: how a reward is shared among roles.")
    ] = CreditChoice.shared,
    json: JsonOpt = False,
) -> None:
    """Write a run's best kernel in another form, or what it can teach."""
    if as_ is ExportKind.extension:
        raise UserError("export --as extension is not there yet; use --as cu, --as model_new or --as t4")
    form = TRAINING_FORMS.get(as_)
    if form is not None:
        from warpsmith.app.export_training import TrainingExport, run_export_training

        wanted = TrainingExport(
            run=run, form=form, to=to or Path(), parquet=parquet, screened=screened, credit=credit.value, json=json
        )
        raise typer.Exit(run_export_training(wanted))
    from warpsmith.app.export import run_export, run_export_t4

    if other := sorted(_given(ctx) & {"parquet", "screened", "credit"}):
        forms = "--as trajectories, sft, preference or grpo"
        raise UserError(f"--{other[0]} is of training data: {forms}, not {as_.value}")
    if as_ is ExportKind.t4:
        raise typer.Exit(run_export_t4(run, to, json=json))
    raise typer.Exit(run_export(run, "cu" if as_ is ExportKind.cu else "model_new", to, json=json))


@app.command()
def report(
    run: Annotated[Path, typer.Argument(parser=_path, metavar="RUN", help="Run folder.")],
    to: Annotated[
        Path | None,
        typer.Option("--to", parser=_path, metavar="PATH", help="Where to write (default: report.html in the run)."),
    ] = None,
    json: JsonOpt = False,
) -> None:
    """Write what a run tried and found as one self-contained page."""
    from warpsmith.app.report import run_report

    raise typer.Exit(run_report(run, to, json=json))


@app.command()
def doctor(
    server: Annotated[
        str | None,
        typer.Option("--server", metavar="URL", help="Probe a model server instead, e.g. http://HOST:PORT/v1."),
    ] = None,
    model: Annotated[str | None, typer.Option("--model", help="With --server: the model to ask.")] = None,
    json: JsonOpt = False,
) -> None:
    """Say what this machine can do, what it lacks and how to mend that."""
    if server is not None or model is not None:
        from warpsmith.app.doctor_server import run_doctor_server

        raise typer.Exit(run_doctor_server(server, model, json=json))
    from warpsmith.app.doctor_command import run_doctor

    raise typer.Exit(run_doctor(json=json))


app.command()(bench)
app.command()(evaluate)
app.command()(rollout)
app.command()(train)


def _not_there_yet(ctx: typer.Context) -> None:
    raise UserError(f"the command `{ctx.info_name}` is not there yet; docs/interface.md lists what is")


for _name in ("view",):
    app.command(
        _name, hidden=True, add_help_option=False,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )(_not_there_yet)  # fmt: skip


def _overrides(pairs: list[str] | None) -> dict[str, str]:
    """`NAME=LITERAL` pairs as a dict; the literal is parsed where the problem is loaded."""
    found: dict[str, str] = {}
    for pair in pairs or []:
        name, equals, literal = pair.partition("=")
        if not equals or not name.strip().isidentifier():
            raise UserError(f"--set {pair!r}: write NAME=LITERAL, e.g. --set dim=1024")
        found[name.strip()] = literal.strip()
    return found


def _module_and_start(problem: str | None, start: str | None, ref: str | None) -> tuple[str, str | None]:
    """The module and the kernel to start from, however they were named."""
    if problem == "-":
        if ref is None or start is not None:
            raise UserError("`-` reads a kernel from standard input: name its module with --ref MODULE, and no --start")
        return ref, "-"
    if problem is not None and ref is not None:
        raise UserError(f"{problem} and --ref {ref} both name the module: leave one out")
    module = problem or ref
    if module is None:
        raise UserError("name the problem: `warpsmith optimize PROBLEM`, or `--start FOLDER --ref MODULE`")
    return module, start


def _refuse_other(given: frozenset[str]) -> None:
    """A session that goes on has its problem and its search; its budgets may be given anew."""
    from warpsmith.app.optimize import RENEWABLE

    free = {*RENEWABLE, "continue", "run", "approve", "out", "jobs"}
    other = sorted(given - free)
    if other:
        shown = ", ".join("PROBLEM" if name == "problem" else f"--{_SPELLED.get(name, name)}" for name in other)
        raise UserError(
            f"{shown}: a session that is continued keeps these; /model changes the policy there, and without -c and -r "
            "a new session begins"
        )


_SPELLED = {"overrides": "set"}


def _must_exist(problem: str) -> None:
    """A file that is not there is told before the seconds that importing torch takes."""
    path = Path(problem.rpartition(":")[0] or problem)
    if not path.exists() and not Path(problem).exists():
        raise UserError(f"{path}: no such file; check the path")


def main() -> None:
    """Runs the command line: errors become one line and their exit code, an interrupt 130 (SIGTERM 143)."""
    try:
        app()
    except WarpsmithError as error:
        fail(error)
    except OSError as error:
        known = explained(error)
        if known is None:
            raise
        fail(known)
