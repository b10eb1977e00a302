"""How long a run trains, and when its learning rate falls.

The budget is in steps, epochs or seconds. With the schedule `wsd` (warm-up, stable, decay) the rate stays at its height
and then falls to 0 in a straight line over the last share `decay` of the run. So the end need not be known at the
beginning: the decay begins when the clock says so, or, from the best weights so far, when validation stops improving,
whatever is left of the budget. From then on the last step is fixed. A run that is made again with these numbers of
steps takes the same steps.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from segue.training.trainer import Config

DEFAULT = 2000
"""Steps of a run whose recipe limits nothing."""
OVERTIME = 1.1
"""A run whose steps became slower in its decay stops at this multiple of its seconds."""


RAREST, MOST = 4, 20
"""The least number of validations of a run, and the most of a run in steps or epochs."""
SHORT = 10
"""Steps that a short run takes from one validation to the next: after fewer, early stopping would judge by chance."""


class Budget:
    """The budget of a run: its last step, and the step at which its rate begins to fall, once they are known."""

    def __init__(self, config: Config, per_epoch: int) -> None:
        self.config = config
        limits = [config.steps] if config.steps else []
        if config.epochs:
            limits.append(max(1, round(config.epochs * per_epoch)))
        if not limits and not config.seconds:
            limits.append(DEFAULT)
        self.steps = min(limits, default=0)
        """The last step; 0: the clock will say."""
        self.most = self.steps
        """The steps or epochs that the recipe allows, in steps; 0: only the clock limits the run."""
        self.decays = config.optimizer.schedule == "wsd"
        self.decay_at: int | None = None
        """The step at which the decay begins, once it is known."""
        if self.decays and self.steps:
            self.decay_at = self.steps - round(config.optimizer.decay * self.steps)

    def progress(self, step: int, seconds: float) -> float:
        """Return the share of the budget that is spent."""
        if 0 < self.config.stop <= step:
            return 1.0
        share = step / self.steps if self.steps else 0.0
        clock = seconds / self.config.seconds if self.config.seconds else 0.0
        if self.decays and self.decay_at is not None and step >= self.decay_at:
            return max(share, 1.0) if clock >= OVERTIME else share
        return max(share, clock)

    def left(self, step: int, seconds: float, pace: float) -> float:
        """Return the seconds to the end of the budget, at `pace` seconds a step."""
        ends = [(self.steps - step) * pace] if self.steps else []
        if self.config.seconds:
            ends.append(self.config.seconds - seconds)
        return min(ends)

    def used_up(self, step: int) -> bool:
        """Whether a run has taken all steps or epochs that its recipe allows."""
        return 0 < self.most <= step

    def look_at_clock(self, step: int, seconds: float) -> None:
        """Begin the decay if only its share of the seconds is left."""
        limit = self.config.seconds
        if self.decays and limit and self._stable(step) and seconds >= (1 - self.config.optimizer.decay) * limit:
            pace = seconds / step
            self._decay(step, math.floor((limit - seconds) / pace))

    def stalled(self, step: int, seconds: float, best: int) -> bool:
        """Begin the decay, since validation got no better after step `best`, and make it as long as for a run of that
        many stable steps. Return False if the decay had begun, or there is none."""
        if not self.decays or not (self._stable(step) or step == self.decay_at):
            return False
        if self._stable(step):
            share = self.config.optimizer.decay
            steps = round(best * share / (1 - share))
            if self.config.seconds:
                steps = min(steps, math.floor((self.config.seconds - seconds) * step / seconds))
            self._decay(step, steps)
        return True

    def _stable(self, step: int) -> bool:
        return self.decay_at is None or step < self.decay_at

    def _decay(self, step: int, steps: int) -> None:
        end = step + max(1, steps)
        self.decay_at, self.steps = step, min(end, self.steps or end)

    def height(self, step: int) -> float:
        """Return the share of its height that the rate has at a step (from 0), under `wsd`."""
        if self.decay_at is None or step <= self.decay_at:
            return 1.0
        return max(0.0, (self.steps - step) / (self.steps - self.decay_at))

    def settled(self, step: int) -> dict[str, Any]:
        """Return the values of [train.optimizer] and [train] with which the same run is made again in steps."""
        if not self.decays or self.decay_at is None:
            return {"steps": step}
        stop = {"stop": step} if step < self.steps else {}  # time was over before the decay, or it was stopped early
        return {"steps": self.steps, "decay": (self.steps - self.decay_at) / self.steps, **stop}

    @property
    def _asked(self) -> list[float]:
        return [self.config.steps, self.config.epochs, self.config.seconds]

    def values(self) -> dict[str, Any]:
        return {"asked": self._asked, "steps": self.steps, "decay_at": self.decay_at}

    def restore(self, values: dict[str, Any]) -> bool:
        """Restore what a checkpoint holds; return False if the budget has grown since, so that all is open again."""
        if values["asked"] != self._asked:
            return False
        self.steps, self.decay_at = values["steps"], values["decay_at"]
        return True


def between_validations(steps: int, epochs: float, held_out: float) -> int:
    """Return the steps from one validation to the next in a run of so many steps and epochs: a twentieth of them, or so
    many that validations take about a tenth of the time, but no more than a quarter. `held_out` is the size of the
    validation text as a share of the training text; to read it takes a third of the time that training on as much
    takes, since there is no backward pass. The clock has no say, so that the run can be made again."""
    affordable = int(0.1 * 3 * epochs / held_out) if held_out else MOST
    return max(1, min(SHORT, steps // RAREST), steps // min(MOST, max(RAREST, affordable)))


def validations(seconds: float) -> int:
    """Return how often to validate in a run of so many seconds: 9 times in 5 s, 18 in 20 s, 40 from 100 s on."""
    return min(40, max(8, round(4 * math.sqrt(seconds))))
