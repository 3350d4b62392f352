"""
Do the Sisyphus and the i6_core that are found offer what Syncopate calls? Read from their sources, without importing
them: importing i6_core takes librosa and h5py, and a setup may hold any commit of either.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from syncopate.errors import ComponentError
from syncopate.launch.components import require_i6_core, require_sisyphus
from syncopate.launch.versions import SISYPHUS_URL

I6_CORE_KNOWN = ("e21acbd of 2025-11-27", "81d2a06 of 2026-07-17")
"""The first commit of i6_core that has all of :data:`I6_CORE`, and the last one that was tried."""


@dataclass(frozen=True, kw_only=True)
class Needed:
    """
    :param file: of the package
    :param name: of a function, a class or a variable, or "Class.method", or "Class.attribute"
    :param arguments: that the function must take
    """

    file: str
    name: str
    arguments: tuple[str, ...] = ()


I6_CORE = (
    Needed(
        file="returnn/training.py",
        name="ReturnnTrainingJob.__init__",
        arguments=(
            *("returnn_config", "log_verbosity", "device", "num_epochs", "save_interval", "keep_epochs"),
            *("horovod_num_processes", "distributed_launch_cmd", "multi_node_slots"),
            *("returnn_python_exe", "returnn_root"),
        ),
    ),
    Needed(
        file="returnn/training.py",
        name="ReturnnTrainingJob.create_returnn_config",
        arguments=(
            *("returnn_config", "log_verbosity", "device", "num_epochs", "save_interval", "keep_epochs"),
            "horovod_num_processes",
        ),
    ),
    Needed(file="returnn/training.py", name="ReturnnTrainingJob._relink"),
    Needed(file="returnn/training.py", name="ReturnnTrainingJob._get_run_cmd"),
    Needed(file="returnn/training.py", name="ReturnnTrainingJob.create_files"),
    Needed(file="returnn/training.py", name="ReturnnTrainingJob.plot"),
    Needed(
        file="returnn/config.py",
        name="ReturnnConfig.__init__",
        arguments=("config", "post_config", "python_prolog", "black_formatting"),
    ),
    Needed(file="returnn/config.py", name="ReturnnConfig._serialize"),
    Needed(file="returnn/config.py", name="ReturnnConfig.write"),
    Needed(file="util.py", name="create_executable"),
    Needed(file="util.py", name="instanciate_delayed_copy"),
)

SISYPHUS = (
    *(
        Needed(file="global_settings.py", name=name)
        for name in (
            *("CLEANUP_ENVIRONMENT", "DEFAULT_ENVIRONMENT_KEEP", "DEFAULT_ENVIRONMENT_SET", "IMPORT_PATHS"),
            *("check_engine_limits", "engine"),
        )
    ),
    Needed(file="toolkit.py", name="cached_engine"),
    Needed(file="toolkit.py", name="register_output", arguments=("name", "value")),
    Needed(file="toolkit.py", name="register_report", arguments=("name", "values", "required", "update_frequency")),
    Needed(file="job.py", name="Job._sis_environment"),
    Needed(file="job.py", name="Job._sis_path"),
    Needed(file="job.py", name="Job._sis_task_rqmt_overwrite"),
    Needed(file="job.py", name="Job.add_alias"),
    Needed(file="job.py", name="Job.job_id"),
    Needed(file="task.py", name="Task.mini_task"),
    Needed(file="task.py", name="Task.rqmt"),
    *(
        Needed(file="tools.py", name=f"EnvironmentModifier.{name}")
        for name in ("cleanup_env", "keep", "keep_vars", "set_vars", "set_vars_verbatim")
    ),
    Needed(file="engine.py", name="EngineBase.get_rqmt", arguments=("task", "task_id", "update")),
    Needed(file="engine.py", name="EngineSelector.default_engine"),
    Needed(file="engine.py", name="EngineSelector.engines"),
    Needed(file="engine.py", name="EngineSelector.get_used_engine_by_rqmt"),
    Needed(file="localengine.py", name="LocalEngine.available_gpus"),
    Needed(file="localengine.py", name="LocalEngine.max_resources"),
)


def require_sisyphus_signature() -> Path:
    """
    :return: the folder of the package
    :raises ComponentError: if there is no Sisyphus, or it lacks something
    """
    require_sisyphus()
    folder = _folder("sisyphus", SISYPHUS[0].file)
    lacks = missing(folder, SISYPHUS)
    if lacks:
        raise ComponentError(
            f"Sisyphus in {folder} is not as Syncopate knows it, it lacks {'; '.join(lacks)}; run pip install"
            f" --force-reinstall '{SISYPHUS_URL}'"
        )
    return folder


def require_i6_core_signature() -> Path:
    """
    :return: the folder of the package
    :raises ComponentError: if there is no i6_core, or it lacks something
    """
    require_i6_core()
    folder = _folder("i6_core", I6_CORE[0].file)
    lacks = missing(folder, I6_CORE)
    if lacks:
        first, last = I6_CORE_KNOWN
        raise ComponentError(
            f"i6_core in {folder} is not as Syncopate knows it, it lacks {'; '.join(lacks)}. Commits from {first} to"
            f" {last} will do; run git -C {folder} fetch && git -C {folder} checkout {last.split()[0]}"
        )
    return folder


def missing(folder: Path, needed: Iterable[Needed]) -> list[str]:
    """
    :param folder: of the package
    :param needed: what it must have
    :return: what it lacks, in words
    """
    sources: dict[str, dict[str, set[str]]] = {}
    lacks = []
    for one in needed:
        if one.file not in sources:
            path = folder / one.file
            sources[one.file] = dict(_definitions(path)) if path.is_file() else {}
        found = sources[one.file].get(one.name)
        if found is None:
            lacks.append(f"{one.name} in {one.file}")
        elif set(one.arguments) - found:
            left_out = ", ".join(name for name in one.arguments if name not in found)
            lacks.append(f"the arguments {left_out} of {one.name} in {one.file}")
    return lacks


def _folder(package: str, file: str) -> Path:
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return next(Path(folder) for folder in spec.submodule_search_locations if (Path(folder) / file).is_file())


def _definitions(path: Path) -> Iterator[tuple[str, set[str]]]:
    """:return: names at the top of a file and in its classes, with the arguments of those that are functions"""
    try:
        module = ast.parse(path.read_bytes(), filename=str(path))
    except SyntaxError as exc:
        raise ComponentError(f"{path} is no Python (line {exc.lineno}: {exc.msg}); check it out anew") from exc
    for node in module.body:
        yield from _names(node)
        if isinstance(node, ast.ClassDef):
            for part in ast.walk(node):
                match part:
                    case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                        yield f"{node.name}.{name}", set()
            for statement in node.body:
                yield from ((f"{node.name}.{name}", arguments) for name, arguments in _names(statement))


def _names(node: ast.stmt) -> Iterator[tuple[str, set[str]]]:
    match node:
        case ast.FunctionDef(name=name, args=args):
            yield name, {argument.arg for argument in (*args.posonlyargs, *args.args, *args.kwonlyargs)}
        case ast.ClassDef(name=name):
            yield name, set()
        case ast.Assign(targets=targets):
            yield from ((target.id, set()) for target in targets if isinstance(target, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name, set()
        case ast.ImportFrom(names=aliases):
            yield from ((alias.asname or alias.name, set()) for alias in aliases)
