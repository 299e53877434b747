"""The CP-SAT model: `build` runs small parts over one set of variables; `pins` fix what is known by adding rows."""

from solvers.model.build import PARTS, REDUNDANT, Part, build
from solvers.model.pins import pin_order, pin_times
from solvers.model.variables import Model

__all__ = ["PARTS", "REDUNDANT", "Model", "Part", "build", "pin_order", "pin_times"]
