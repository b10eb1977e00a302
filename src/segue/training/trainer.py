"""The training loop of all networks: a generator of records.

    for record in Trainer(...).fit(): …

One update: count the denominators of all parts, go forward and backward part by part (gradient accumulation), clip,
step. `patience` is early stopping; budget.py says when the run ends and when its rate falls.
Losses and the guard against NaN stay on the device and are read every `log_every` steps; an update
that is not finite never lands, because the optimiser gets the flag and moves nothing.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from segue.batches.batch import Batch
from segue.batches.batches import Batches
from segue.models.base import Record, Term, TrainConfig
from segue.models.network import check_learnt
from segue.training import cuda, rates
from segue.training.budget import Budget, between_validations, validations
from segue.training.checkpoint import FROZEN
from segue.training.device import FallingPace
from segue.training.fitting import fitted
from segue.training.interrupt import DroppedError, Interrupts
from segue.training.log import DivergedError
from segue.training.profile import Profile, phase
from segue.training.world import World

PACE = 10
"""Steps after which the pace of a run is known."""

SOONER = 0.1
"""A run that ends with more than this share of its seconds left, and more than one second, says so."""

Validate = Callable[[Callable[[float], None]], dict[str, Any]]
Worth = Callable[[dict[str, Any]], tuple[float, ...]]


def by_loss(values: dict[str, Any]) -> tuple[float, ...]:
    """Rank validations by their loss alone."""
    return (-values["loss"],)


@dataclass(frozen=True)
class Config(TrainConfig):
    """The recipe's [train]."""

    steps: int = 0
    """Train at most this many steps (0: no limit; 2,000 if nothing else limits the run)."""
    epochs: float = 0.0
    """Train at most this many epochs (0: no limit)."""
    seconds: float = 0.0
    """Train at most this many seconds, validations included (0: no limit)."""
    stop: int = 0
    """Stop at this step, although the learning rate is scheduled for more of them (0: at the end of the budget)."""
    seed: int = 0
    """Random seed of the initial weights, the order of the data and dropout."""
    optimizer: rates.Config = field(default_factory=rates.Config)
    """Optimiser, learning rate schedule, gradient clipping, averaged weights."""
    every: int = 0
    """Validate and save a checkpoint every so many steps (0: four to forty times, about a tenth of a run's time)."""
    log_every: int = 10
    """Log the training loss every so many steps."""
    patience: int = 6
    """Early stopping: stop after so many validations without improvement, with schedule=wsd decay first (0: never)."""
    validate_tokens: int = 100_000
    """Score about this many predictions at each validation, from the beginning of the validation data."""
    plan: Literal["none", "epochs", "size"] = "epochs"
    """With seconds: set schedule, dropout, decay and validations by how often the text is read; size: the size too."""
    named: str = ""
    """Keys that `plan` leaves as they are, comma separated; those that you name are added."""
    init: str = ""
    """Fine-tuning: begin with the weights and the tokenizer of this run."""
    freeze: str = ""
    """Parameters that are not trained, by the first parts of their names, comma separated."""
    tensorboard: bool = False
    """Also write TensorBoard's files, into `tensorboard/`."""

    def __post_init__(self) -> None:
        if min(self.steps, self.epochs, self.seconds, self.stop, self.every, self.patience) < 0:
            raise ValueError("steps, epochs, seconds, stop, every and patience must be 0 or more")
        if self.log_every < 1 or self.validate_tokens < 1:
            raise ValueError("log_every and validate_tokens must be 1 or more")


class Trainer:
    """One run of training: the model, its progress, and all state that is needed to resume."""

    def __init__(
        self,
        model: Any,
        batches: Batches,
        config: Config,
        validate: Validate | None,
        device: str,
        profile: Profile | None = None,
        world: World | None = None,
        worth: Worth = by_loss,
        held_out: float = 0.0,
    ) -> None:
        """`held_out`: the size of the validation text as a share of the training text."""
        self.model, self.batches, self.config, self.validate, self.device = model, batches, config, validate, device
        cuda.prepare(device)
        self.world, self.worth = world or World(), worth
        self.loss = self.world.wrapped(model)
        self.log = _LossSums(device)
        self.validating: Callable[[float], None] = lambda share: None
        """A callback for the progress of a validation."""
        self.optimizer = rates.optimizer(model, config.optimizer)
        self.step = 0
        self.seconds = 0.0
        self.targets = 0
        self.halvings = 0
        self.best: dict[str, Any] = {}
        """The best validation so far: its values, its step, and how many have come since without a better one."""
        self.best_weights: dict[str, Tensor] = {}
        """The weights of the best validation, without those that do not learn."""
        self.frozen = {name for name, p in model.named_parameters(remove_duplicate=False) if not p.requires_grad}
        self.losses: list[float] = []
        """Validation losses until averaging starts (NT-ASGD)."""
        ema = config.optimizer.ema
        self.average: rates.Average | None = rates.Average(model, ema) if ema else None
        self.carried: list[Any] = []
        self.graphs = cuda.Graphs()
        self.compiler = cuda.Compiler(model, device, batches)
        self.profile = profile
        # A recorded step has no phases to time.
        alone = batches.config.accumulate == 1 and profile is None and self.world.size == 1
        self._records = alone and cuda.may_record(batches, device)
        self._began = 0
        self.budget = Budget(config, batches.per_epoch)
        self.every = config.every or (0 if config.seconds else self._spaced(held_out))
        """Steps from one validation to the next; 0: not known before the pace is."""
        self.validation_seconds = 0.0
        """Seconds of validations and checkpoints, and of the trials before the first step."""
        self.pace: FallingPace | None = None
        """Halves the threads of a run with a budget in seconds when its pace falls; None: they are settled."""
        self.stopped_early = False
        """Whether early stopping ended the run, or began its decay, before the budget was spent."""
        self.interrupts = Interrupts()
        self.owes_validation = False
        """Whether the last step is to be validated, which an interruption prevented."""
        self._stopped = False
        self._validated_at = 0

    def _spaced(self, held_out: float) -> int:
        """Return the steps between validations of a run in steps or epochs, the same in all processes."""
        steps = self.budget.steps
        every: int = self.world.broadcast(between_validations(steps, steps / self.batches.per_epoch, held_out))
        return every

    @property
    def spent(self) -> float:
        """Seconds of training and validation."""
        return self.seconds + self.validation_seconds

    @property
    def progress(self) -> float:
        """The share of the budget that is spent."""
        return self.budget.progress(self.step, self.spent)

    def fit(self) -> Iterator[Record]:
        """Train to the end of the budget. After a `validation` or `checkpoint` record the state may be saved.
        After an `interrupted` record it must be, and nothing follows."""
        self.model.train()
        if self.owes_validation:
            yield from self._validation()
        while self.progress < 1 and not self._stopped and not self.interrupts.signal:
            begun = time.perf_counter()
            with phase(self.profile, "data"):
                parts = self.batches.at(self.step)
            counts = self._begin_step(parts)
            if self._records and self.step - self._began >= cuda.WARM:
                self.carried = self.graphs.run(parts[0], counts, self.carried, self._recorded)
            else:
                with phase(self.profile, "data"):
                    on_device = [self.world.share(part).to(self.device) for part in parts]
                self._step(on_device, counts)
            self._end_step(parts)
            last = self.progress >= 1
            if last or self.step % self.config.log_every == 0:
                values = self.log.read(self)
                self.seconds += time.perf_counter() - begun
                values |= {"seconds": self.seconds, "progress": self.progress} | self._fewer_threads()
                yield Record(self.step, "train", values)
                self._consider_compiling()
            else:
                self.seconds += time.perf_counter() - begun
            if self.config.seconds:
                self.seconds = self.world.broadcast(self.seconds)
                self.budget.look_at_clock(self.step, self.spent)
            if self._due() or self.progress >= 1:
                yield from self._validation()
        if self.interrupts.signal:
            yield Record(self.step, "interrupted", {})

    def _validation(self) -> Iterator[Record]:
        """Validate, and let the caller save a checkpoint. An interrupted validation is made when the run goes on."""
        self.owes_validation = True
        try:
            record = self._validated()
        except DroppedError:
            return
        self.owes_validation, begun = False, time.perf_counter()
        yield record  # the caller saves a checkpoint
        self._add_validation(time.perf_counter() - begun)
        self._count_anew()

    def _fewer_threads(self) -> dict[str, int]:
        """Return the new number of threads if the pace has fallen. A run in steps or epochs never changes it: another
        number gives other last bits."""
        count = self.pace.look(self.targets, self.seconds) if self.pace is not None and self.config.seconds else 0
        return {"threads": count} if count else {}

    def _consider_compiling(self) -> None:
        """Decide about torch.compile; wait for queued work first, so that the clock shows the pace."""
        if not self.compiler.waits or self.step - self._began <= cuda.WARM:
            return
        if self.compiler.pays(self.step, self.seconds, self._left):
            self.compiler.compile()
            self.graphs, self._began = cuda.Graphs(), self.step

    def _left(self, pace: float) -> float:
        return self.budget.left(self.step, self.spent, pace)

    def _due(self) -> bool:
        """Whether to validate. With a budget in seconds, a plan or the pace of the first steps says how often, unless
        the user does; validations that take more than a tenth of the time become rarer."""
        if self.config.seconds and "train.every" not in self.config.named.split(","):
            if not self.every and self.step - self._began >= PACE:
                each = self.config.seconds / validations(self.config.seconds)
                self.every = max(1, round(each * self.step / self.spent))
            elif self.every and self.validation_seconds > self.spent / 10:
                return self.step >= 2 * self._validated_at and self.validation_seconds < self.seconds
        return bool(self.every) and self.step % self.every == 0

    def _begin_step(self, parts: list[Batch]) -> dict[str, int]:
        """Set the learning rate; return the denominators of the loss, over all parts (gradient accumulation)."""
        rate = rates.rate_at(
            self.config.optimizer, self.step, self.progress, self.halvings, self.budget.height(self.step)
        )
        self.optimizer.set_rate(rate * self.batches.rate_share(parts))
        self.log.rate, self.log.steps = rate, self.log.steps + 1
        return self._counts(parts)

    def _end_step(self, parts: list[Batch]) -> None:
        if self.average is not None:
            self.average.add()
        self.targets += sum(part.count for part in parts)
        if self.profile is not None:
            self.profile.steps += 1
            if self.step - self._began == cuda.WARM:
                self.profile.forget()
        self.step += 1

    def _recorded(self, batch: Batch, counts: Mapping[str, Any], carried: list[Any]) -> list[Any]:
        """The step that becomes a CUDA graph, recorded when its shape is met for the second time."""
        self.carried = carried
        self._step([batch], counts)
        return self.carried

    def _step(self, parts: list[Batch], counts: Mapping[str, Any]) -> None:
        """Forward, backward, gradient clipping, update: all on the device, nothing read back."""
        self.optimizer.forget_gradients()
        carried = self.carried + [None] * (len(parts) - len(self.carried))
        self.carried = []
        for place, (part, state) in enumerate(zip(parts, carried, strict=False)):
            self.world.last_part(place == len(parts) - 1)
            with cuda.precision(self.device), phase(self.profile, "forward"):
                loss = self.loss(part, state)
            shares = {term.name: _share(term, counts[term.name]) for term in loss.terms}
            total = torch.stack(list(shares.values())).sum()
            with phase(self.profile, "backward"):
                (total * self.world.size).backward()  # type: ignore[no-untyped-call]
            self.log.add(shares)
            if loss.state is not None and self.batches.carries:
                self.carried.append(loss.state.detach())
        with phase(self.profile, "optimiser"):
            norm = rates.gradient_norm(self.model, self.config.optimizer.clip)
            self.optimizer.skip = self.log.guard(norm, self.world)
            self.optimizer.step()

    def _counts(self, parts: list[Batch]) -> dict[str, int]:
        counts: dict[str, int] = defaultdict(int)
        for part in parts:
            for name, count in self.model.counts(part).items():
                counts[name] += count
        return {name: max(1, count) for name, count in counts.items()}

    def _validated(self) -> Record:
        self.log.read(self)  # a bad step must not be validated or saved
        begun, self._validated_at = time.perf_counter(), self.step
        if self.validate is None:
            return Record(self.step, "checkpoint", {"seconds": self.seconds})
        with self.average.in_place() if self.average is not None else nullcontext():
            self.model.eval()
            with torch.inference_mode():
                values = self.world.broadcast(self.validate(self.validating) if self.world.first else None)
            self.model.train()
            self._add_validation(time.perf_counter() - begun)
            self._judge(values)
        if self.config.patience and self.best["since"] >= self.config.patience:
            self._stop_early()
        self._count_anew()
        if self.average is not None:
            values |= {"averaged": self.average.steps}
        elif self.config.optimizer.average:
            self._begin_average(values["loss"])
        return Record(self.step, "validation", values | {"seconds": self.seconds})

    def _add_validation(self, seconds: float) -> None:
        """Count the seconds of a validation; all processes must agree on what is left of the budget."""
        self.validation_seconds += seconds
        if self.config.seconds:
            self.validation_seconds = self.world.broadcast(self.validation_seconds)

    def _judge(self, values: dict[str, Any]) -> None:
        """Keep the weights that were just validated if they are the best so far; count for early stopping."""
        if not self.best or math.isnan(self.best["loss"]) or self.worth(values) > self.worth(self.best):
            self.best = values | {"step": self.step, "since": 0}
            self.best_weights = {name: tensor.detach().clone() for name, tensor in self._tensors(frozen=False).items()}
        else:
            self.best["since"] += 1
            self.halvings += 1

    def _stop_early(self) -> None:
        """Validation stopped improving: let the rate decay from the best weights, or stop if it has decayed already, or
        if the schedule has no decay."""
        pace = self.spent / self.step
        before = self.budget.left(self.step, self.spent, pace)
        self._stopped = not self.budget.stalled(self.step, self.spent, self.best["step"])
        if not self._stopped:
            self._take(self.best_weights)
            if self.average is not None:
                self.average.begin_anew()
        sooner = self.progress < 1 if self._stopped else self.budget.left(self.step, self.spent, pace) < before
        self.stopped_early = self.stopped_early or sooner

    def _count_anew(self) -> None:
        """Give the decay as many validations without improvement as the steps before it had."""
        if self.best and self.step == self.budget.decay_at:
            self.best["since"] = 0

    def _begin_average(self, loss: float) -> None:
        """Start averaging the weights as soon as validation has not improved for long enough (NT-ASGD)."""
        self.losses.append(loss)
        if rates.stalled(self.losses, self.config.optimizer.average):
            self.average = rates.Average(self.model)

    def take_best(self) -> None:
        """Load the best weights into the model, and end its training mode: no more dropout. Refuse a model that has
        diverged."""
        if self.best_weights:
            self._take(self.best_weights)
        self.model.eval()
        check_learnt(self.model)
        self.graphs = cuda.Graphs()  # frees their memory

    def summary(self) -> dict[str, Any]:
        """Return what result.json says about the training."""
        found = fitted(self.seconds, self.step, self.targets, self.step / self.batches.per_epoch, self.model)
        if self.best:
            found |= {"best_step": self.best["step"], "validation_loss": self.best["loss"]}
        if self.profile is not None:
            looked_up = {id(m.weight) for m in self.model.modules() if isinstance(m, torch.nn.Embedding)}
            met = sum(p.numel() for p in self.model.parameters() if self.model.tied or id(p) not in looked_up)
            found["profile"] = self.profile.result(self.targets / max(1, self.step), met)
        left = max(0.0, self.config.seconds - self.spent)
        given_back = self.stopped_early or self.budget.used_up(self.step)  # else the clock ended it, in whole steps
        if given_back and left > max(1.0, SOONER * self.config.seconds):
            found["seconds_left"] = left
        return found | {"stopped_early": self.stopped_early, "wall_seconds": self.spent}

    def settled(self) -> dict[str, Any]:
        """Return what the clock decided, as steps: with these values the run can be made again."""
        return {**self.budget.settled(self.step), "every": self.every}

    # What a checkpoint holds: tensors by file, and plain values.

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """Collective: every process must call this (carried state is gathered)."""
        carried = {
            f"{i}.{name}": self.world.whole(rows)
            for i, state in enumerate(self.carried)
            for name, rows in state.tensors().items()
        }
        files = {
            "model": self._tensors(frozen=False),
            "optimizer": self.optimizer.tensors(),
            "carried": carried,
            "random": self._generators(),
        }
        if self.frozen:
            files[FROZEN] = self._tensors(frozen=True)
        if self.best_weights and (self.best["step"] != self.step or self.average is not None):
            files["best"] = self.best_weights
        if self.average is not None:
            files["average"] = self.average.means
        return files

    def _tensors(self, frozen: bool) -> dict[str, Tensor]:
        """Return the model's tensors that learn, with its buffers, or those that do not."""
        return {name: one for name, one in self.model.state_dict().items() if (name in self.frozen) == frozen}

    def _take(self, weights: dict[str, Tensor]) -> None:
        """Put other weights into the model; those that do not learn stay."""
        self.model.load_state_dict(weights | self._tensors(frozen=True))

    def values(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "seconds": [self.seconds, self.validation_seconds],
            "targets": self.targets,
            "halvings": self.halvings,
            "best": self.best,
            "losses": self.losses,
            "budget": self.budget.values(),
            "every": self.every,
            "stopped": [self.stopped_early, self._stopped],
            "averaged": None if self.average is None else self.average.steps,
            "owes_validation": self.owes_validation,
            "log": self.log.values(self),
        }

    def restore(self, tensors: dict[str, dict[str, Tensor]], values: dict[str, Any]) -> None:
        """Restore the state from the `tensors` and `values` of a checkpoint."""
        self.model.load_state_dict(tensors["model"] | tensors.get(FROZEN, {}))
        self.optimizer.restore(tensors["optimizer"])
        carried: dict[int, dict[str, Tensor]] = defaultdict(dict)
        for key, value in tensors["carried"].items():
            i, name = key.split(".", 1)
            carried[int(i)][name] = value.to(self.device)
        kind: Any = type(self.model.start(1, 1)) if carried else None
        self.carried = [self._mine(kind.from_tensors(carried[i])) for i in sorted(carried)]
        self.step, self.targets = values["step"], values["targets"]
        self.seconds, self.validation_seconds = values["seconds"]
        self.halvings, self.best = values["halvings"], values["best"]
        self._began = self._validated_at = self.step
        if self.budget.restore(values["budget"]):
            self.every = self.config.every or values["every"]
            self.stopped_early, self._stopped = values["stopped"]
        elif self.best:
            self.best["since"] = 0
        self.best_weights = dict(tensors.get("best", tensors["model"])) if self.best else {}
        self.losses = list(values.get("losses", []))
        self.average = rates.Average(self.model, self.config.optimizer.ema) if "average" in tensors else None
        if self.average is not None:
            self.average.restore(tensors["average"], values["averaged"])
        self.owes_validation = values["owes_validation"]
        self.log.restore(values["log"])
        self._set_generators(tensors["random"])

    def _mine(self, state: Any) -> Any:
        """Select this process's rows of a carried state."""
        rows = next(iter(state.tensors().values())).shape[1]
        if self.world.size == 1:
            return state
        return state.select(torch.from_numpy(self.world.rows(rows)).to(self.device))

    def _generators(self) -> dict[str, Tensor]:
        """Return the states of every process's random number generators: cpu, cuda; cpu.1, cuda.1; …"""
        states = {"cpu": torch.get_rng_state()}
        if self.device.startswith("cuda"):
            states["cuda"] = torch.cuda.get_rng_state()
        return {
            f"{name}.{rank}" if rank else name: found
            for name, state in states.items()
            for rank, found in enumerate(self.world.gather(state))
        }

    def _set_generators(self, states: dict[str, Tensor]) -> None:
        """Restore this process's random number generators; a process that was not there before gets a new seed."""
        ending = "" if self.world.first else f".{self.world.rank}"
        if f"cpu{ending}" not in states:
            self.world.seed(self.config.seed + self.step)
            return
        torch.set_rng_state(states[f"cpu{ending}"])
        if f"cuda{ending}" in states:
            torch.cuda.set_rng_state(states[f"cuda{ending}"])


def _share(term: Term, count: Any) -> Tensor:
    """Divide a term of the loss by its count. A recorded step has the count on the device, as a double."""
    scale = term.weight / count
    share: Tensor = term.total * (scale.to(term.total.dtype) if isinstance(scale, Tensor) else scale)
    return share


class _LossSums:
    """Sums of the losses since they were last read, and the first bad step, all on the device."""

    def __init__(self, device: str) -> None:
        self.sums: dict[str, Tensor] = {}
        self.steps = 0
        self.rate = 0.0
        self.norm = torch.zeros((), device=device)
        self.good = torch.zeros((), dtype=torch.int64, device=device)
        self.finite = torch.ones((), dtype=torch.bool, device=device)

    # Everything is written in place, so that a recorded step writes where the next one reads.

    def add(self, shares: dict[str, Tensor]) -> None:
        for name, share in shares.items():
            value = share.detach()
            if name not in self.sums:
                self.sums[name] = torch.zeros_like(value)
            self.sums[name] += value
            self.finite &= value.isfinite()

    def guard(self, norm: Tensor, world: World) -> Tensor:
        """Return 1 if this update must be skipped, else 0; after a bad update, skip all others until it is read."""
        self.norm.copy_(norm)
        self.finite &= norm.isfinite()
        world.agree(self.finite)
        self.good += self.finite
        return (~self.finite).float()

    def check(self, trainer: Trainer) -> None:
        """Raise a DivergedError if a step was bad."""
        good = int(self.good)
        if good < self.steps:
            step = trainer.step - self.steps + good + 1
            epoch, place = divmod(step - 1, trainer.batches.per_epoch)
            raise DivergedError(step, f"batch {place + 1} of epoch {epoch + 1}")

    def values(self, trainer: Trainer) -> dict[str, Any]:
        """Return what a checkpoint between two readings must hold."""
        self.check(trainer)
        sums = {name: float(total) for name, total in self.sums.items()} if self.steps else {}
        return {"steps": self.steps, "sums": sums}

    def restore(self, values: dict[str, Any]) -> None:
        self.steps = values["steps"]
        self.good += self.steps
        if self.steps:
            self.sums = {name: torch.tensor(total, device=self.norm.device) for name, total in values["sums"].items()}

    def read(self, trainer: Trainer) -> dict[str, Any]:
        self.check(trainer)
        if not self.steps:
            return {}
        for total in self.sums.values():
            trainer.world.add(total)
        values = {name: float(total) / self.steps for name, total in self.sums.items()}
        values |= {"rate": self.rate, "gradient": float(self.norm)}
        for total in (*self.sums.values(), self.good):
            total.zero_()
        self.steps = 0
        return values
