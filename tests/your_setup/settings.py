# A user's own settings, as they were before Syncopate came.
WORK_DIR = "work"
IMPORT_PATHS = ["config", "recipe/"]
JOB_AUTO_CLEANUP = False
WAIT_PERIOD_JOB_FS_SYNC = 0
WAIT_PERIOD_BETWEEN_CHECKS = 1
WAIT_PERIOD_CACHE = 1
WAIT_PERIOD_JOB_CLEANUP = 0
WAIT_PERIOD_MTIME_OF_INPUTS = 0
SHOW_JOB_TARGETS = False
USE_VERBOSE_TRACEBACK = False


def engine():
    from sisyphus.engine import EngineSelector
    from sisyphus.localengine import LocalEngine

    return EngineSelector(
        engines={"short": LocalEngine(cpu=2), "long": LocalEngine(cpu=2)},
        default_engine="long",
    )
