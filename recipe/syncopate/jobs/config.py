"""A :class:`~syncopate.returnn_io.training_config.TrainingConfig` where i6_core wants its ``ReturnnConfig``."""

from __future__ import annotations

from typing import Any

from i6_core.returnn.config import ReturnnConfig
from i6_core.util import instanciate_delayed_copy
from syncopate.jobs.produce import ProduceJob
from syncopate.returnn_io.training_config import TrainingConfig
from syncopate.returnn_io.write import config_text


class WrittenReturnnConfig(ReturnnConfig):
    """
    Prints as Syncopate's own writer prints it, so that a local run and a job hold the same text.

    :param config: as in ``ReturnnConfig``
    :param post_config: as in ``ReturnnConfig``
    :param imports: import statements for the top of the config, hashed
    :param reports: the scores a training is known to report, not hashed
    """

    def __init__(
        self,
        config: dict[str, Any],
        post_config: dict[str, Any] | None = None,
        *,
        imports: tuple[str, ...] = (),
        reports: tuple[str, ...] = (),
    ):
        super().__init__(config, post_config, python_prolog=list(imports) or None, black_formatting=False)
        self.reports = reports

    def _serialize(self) -> str:
        return config_text(
            TrainingConfig(
                config=instanciate_delayed_copy(self.config),
                post_config=instanciate_delayed_copy(self.post_config),
                imports=tuple(self.python_prolog or ()),
            )
        )


def as_returnn_config(config: Any) -> ReturnnConfig:
    """
    :param config: a ``ReturnnConfig``, or a :class:`TrainingConfig`, whose produced files become outputs of jobs
    :return: the config for a training job
    """
    if not isinstance(config, TrainingConfig):
        return config
    resolved = config.resolved(ProduceJob.file)
    return WrittenReturnnConfig(
        dict(resolved.config), dict(resolved.post_config), imports=config.imports, reports=config.reports
    )
