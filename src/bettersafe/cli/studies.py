"""Commands about studies: demo, study, sepsis."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bettersafe.cli.options import Given, JsonOption, takes
from bettersafe.cli.runs import write_page
from bettersafe.tasks.settings import Setting


def demo(
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            help="Also write the cohort (cohort.parquet), the run (run/) and new patients (later.parquet) to DIR, to try the other commands.",
        ),
    ] = None,
    patients: Annotated[int, typer.Option(metavar="N", min=100, help="Size of the cohort.")] = 20_954,
    epsilon: Annotated[float, typer.Option(metavar="E", help="Budget of S-OPT.")] = 0.1,
    seed: Annotated[int, typer.Option(metavar="S", min=0, help="Seed of the cohort.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Replace existing files.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Improve on clinicians in a simulator of sepsis care, and compare estimated with true returns.

    Example: [bold]bettersafe demo -o sepsis[/bold] then [bold]bettersafe show sepsis/run[/bold]
    """
    from bettersafe.cli import show
    from bettersafe.studies.demo import check_demo_free, demo_json, run_demo, write_demo

    if output is not None:
        check_demo_free(output, force=force)
    with show.working("Drawing a cohort and improving on it"):
        result = run_demo(patients=patients, epsilon=epsilon, seed=seed)
        if output is not None:
            write_demo(result, output, force=force)
            write_page(output / "run", left_out=False)
    if as_json:
        show.print_json(demo_json(result))
    else:
        show.print_demo(result, output)


study_app = typer.Typer(
    help="Rerun the paper's studies: [bold]study list[/bold], [bold]study run ID[/bold], [bold]study figures DIR[/bold].\n\n"
    "Example: [bold]bettersafe study run gridworld/fixed[/bold]",
    no_args_is_help=True,
    rich_markup_mode="rich",
)


@study_app.command("list")
def study_list(as_json: JsonOption = False) -> None:
    """List the studies.

    Example: [bold]bettersafe study list[/bold]
    """
    from bettersafe.cli import show
    from bettersafe.studies.catalogue import CATALOGUE

    if as_json:
        entries = [{"id": key, "about": e.about, "full": e.full, "unit": e.unit} for key, e in CATALOGUE.items()]
        show.print_json(entries)
    else:
        show.print_studies(CATALOGUE)


STUDY = (
    Setting(
        name="cmdps", kind="whole number", default=None, metavar="N", least=1, otherwise="all",
        help="Gridworlds: number of random CMDPs; 3 for a quick trial",
    ),
    Setting(
        name="worlds", kind="whole number", default=None, metavar="N", least=1, otherwise="250, gauntlet 60",
        help="Garnets, gauntlet: number of random worlds of each kind and size",
    ),
    Setting(
        name="delta", kind="number", default=None, metavar="D", otherwise="0.1, gridworld/delta-0.9 0.9",
        help="Gridworlds, garnets, gauntlet: allowed risk",
    ),
    Setting(
        name="half", kind="text", default=None, metavar="HALF", otherwise="choose and confirm",
        help="Gauntlet: choose (kinds to choose rules by), confirm, fresh, fourth, fifth, sixth, seventh (others, each to be looked at once) or all",
    ),
    Setting(
        name="kinds", kind="text", default=None, metavar="NAMES", otherwise="all of the half",
        help="Gauntlet: names of kinds of worlds, with commas between them",
    ),
    Setting(
        name="seeds", kind="whole number", default=None, metavar="N", least=1, otherwise="10",
        help="Sepsis: number of cohorts or splits",
    ),
    Setting(
        name="patients", kind="whole number", default=None, metavar="N", least=1, otherwise="20954",
        help="Sepsis: patients in a cohort",
    ),
    Setting(
        name="cohort", kind="text", default=None, metavar="RULE",
        help="Sepsis: a fresh cohort for each seed, or one fixed cohort with new splits",
    ),
    Setting(
        name="baseline", kind="text", default=None, metavar="RULE",
        help="Sepsis: clinicians' policy, estimated or known (the simulator's)",
    ),
    Setting(
        name="unseen", kind="text", default=None, metavar="RULE",
        help="Sepsis: decisions never tried lead to death, end or the baseline's value",
    ),
    Setting(
        name="preset", kind="text", default=None, metavar="NAME",
        help="Sepsis: ours (this package's estimates) or published (those of the published code)",
    ),
    Setting(
        name="without", kind="text", default=None, metavar="METHOD",
        help="Sepsis: leave out b-opt, the slowest method",
    ),
    Setting(
        name="data", kind="list of texts", default=(), metavar="DIR",
        help="sepsis/mimic: output of 'bettersafe sepsis prepare', one split or a folder of splits; may be repeated",
    ),
)  # fmt: skip
"""Options of single studies; the catalogue lists the options of each study."""


@study_app.command("run")
@takes(*STUDY, short=False)
def study_run(
    given: Given,
    study_id: Annotated[str, typer.Argument(metavar="ID", help="A study of 'bettersafe study list'.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="DIR", help="Folder of the study. (default: study-ID in this folder)"),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="S", min=0, help="Seed of CMDPs or cohorts, and of logs.")] = 0,
    engine: Annotated[str, typer.Option(metavar="ENGINE", help="local (this machine's cores) or ray.")] = "local",
    workers: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Experiments at a time. (default: all cores)")
    ] = None,
    address: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Address of the Ray cluster.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Run a study. If it is killed, the same command continues it.

    Example: [bold]bettersafe study run gridworld/fixed --cmdps 3 -o smoke[/bold] then
    [bold]bettersafe study figures smoke[/bold]; [bold]bettersafe study run sepsis/icu --seeds 2[/bold]
    """
    from bettersafe.cli import show
    from bettersafe.studies.catalogue import make_study
    from bettersafe.studies.sweep import run_sweep
    from bettersafe.text.numbers import counted

    study = make_study(study_id, seed=seed, **given)
    folder = output or Path("study-" + study_id.replace("/", "-"))
    with show.counting(f"{study_id}: experiments") as progress:
        result = run_sweep(study, folder, engine=engine, workers=workers, address=address, progress=progress)  # type: ignore[arg-type]
    if as_json:
        show.print_json(
            {
                "study": study_id,
                "folder": str(folder),
                "rows": str(result.rows),
                "done": result.done,
                "skipped": result.skipped,
                "seconds": round(result.seconds, 3),
            }
        )
    else:
        were = "was" if result.skipped == 1 else "were"
        had = f" ({result.skipped} {were} there already)" if result.skipped else ""
        typer.echo(
            f"{counted(result.done, 'experiment')} in {result.seconds:.1f} s{had}. Rows are in {result.rows}. For figures and tables,"
            f" run: bettersafe study figures {folder}"
        )


@study_app.command("figures")
def study_figures(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a study.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Output folder. (default: DIR/figures)")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Draw a study's figures (PNG and SVG) and write its tables, with the published values beside ours.

    Example: [bold]bettersafe study figures study-gridworld-fixed[/bold]. For an unfinished study, figures and tables cover the
    finished part and say so. Without the extra 'plots' (Matplotlib) only the tables are written.
    """
    from bettersafe.cli import show
    from bettersafe.studies.figures import write_figures

    with show.working("Drawing"):
        written = write_figures(folder, output)
    if as_json:
        show.print_json([str(path) for path in written])
    else:
        for path in written:
            typer.echo(str(path))


sepsis_app = typer.Typer(
    help="The sepsis study on MIMIC-III, for users with access to it.\n\n"
    "Example: [bold]bettersafe sepsis prepare sepsis_mimiciii.csv MIMICtable.csv -o DIR[/bold]",
    no_args_is_help=True,
    rich_markup_mode="rich",
)


PREPARE = (
    Setting(name="k", kind="whole number", default=750, metavar="K", least=1, help="Number of states"),
    Setting(
        name="iv_bins", kind="text", default="clinical", metavar="RULE",
        help="Bins of fluid",
        choices={"clinical": "cut at 500, 1000, 2000 mL, as in the published code", "quartile": "quartiles, as in the paper"},
    ),
    Setting(
        name="outcome", kind="text", default="died_in_hosp", metavar="COL", help="Column of deaths",
        choices={"died_in_hosp": "as in the paper", "mortality_90d": ""},
    ),
    Setting(name="starts", kind="whole number", default=10, metavar="N", least=1, help="Starts of the full k-means"),
    Setting(name="seed", kind="whole number", default=0, metavar="S", least=0, help="Seed of the split by stay"),
)  # fmt: skip
"""Options of 'sepsis prepare'."""


@sepsis_app.command("prepare")
@takes(*PREPARE, short=False)
def sepsis_prepare(
    given: Given,
    cohort: Annotated[Path, typer.Argument(metavar="COHORT", help="sepsis_mimiciii.csv: one row per stay.")],
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="MIMICtable.csv: one row per four hours, 59 columns.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Directory to write the logs and the map to.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Mini-batch k-means: seconds instead of minutes.")] = False,
    splits: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Write N splits, DIR/split-00 and so on, with seeds from S; 10 for the paper's tables. If stopped, the same command continues.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace existing files.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Check the two tables of the published MIMIC-III cohort, and write them as logs with states.

    Example: [bold]bettersafe sepsis prepare sepsis_mimiciii.csv MIMICtable.csv --splits 10 -o DIR[/bold]
    """
    from bettersafe.cli import show
    from bettersafe.studies.sepsis.mimic import Preparation, prepare_mimic, prepare_splits

    if output is None:
        raise typer.BadParameter("say where to write the logs, e.g. -o DIR", param_hint="--output / -o")
    options: Given = {row.name: row.default for row in PREPARE} | given
    how = Preparation(quick=quick, n_init=options.pop("starts"), **options)
    with show.working("Reading") as progress:
        if splits is None:
            document = prepare_mimic(cohort, table, output, how, force=force, progress=progress)
        else:
            documents = prepare_splits(cohort, table, output, how, splits=splits, force=force, progress=progress)
    if as_json:
        show.print_json(document if splits is None else documents)
    elif splits is None:
        show.print_prepared(document, output)
    else:
        show.print_splits(documents, output)
