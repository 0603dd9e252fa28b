"""What fires each alert, and what comes near and does not."""

from tests.monitoring.cases.graphs import GRAPHS
from tests.monitoring.cases.objectives import OBJECTIVES
from tests.monitoring.cases.operator import OPERATOR
from tests.monitoring.cases.serving import SERVING

CASES = (*GRAPHS, *SERVING, *OBJECTIVES, *OPERATOR)
