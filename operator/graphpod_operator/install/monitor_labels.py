"""Labels of every PodMonitor, as the operator's installer gives them."""

from __future__ import annotations

import json

from pydantic import ValidationError

from graphpod_operator.api.lifecycle import Monitoring
from graphpod_operator.schema.validation_errors import mistakes


class LabelsInvalid(ValueError):
    """What was given are no labels, or some are the operator's own; the message says which."""


def read(text: str) -> dict[str, str]:
    """From JSON, by the rules of spec.monitoring.labels. Raises LabelsInvalid."""
    try:
        return dict(Monitoring.model_validate({"labels": json.loads(text)}).labels)
    except ValidationError as error:
        why = mistakes(error)[0].what
    except ValueError as error:
        why = str(error)
    except RecursionError:
        why = "it is nested too deeply"
    raise LabelsInvalid(f'expected labels as JSON, such as {{"release": "prometheus"}}: {why}')
