"""Reports of `model.fit` in Keras."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from spark_jobs.trial.context import current, take_report
from spark_jobs.trial.objective import numbers_in
from spark_jobs.trial.trained_epochs import EpochsOfFit, TrainedEpochs


def keras_callbacks() -> list[Any]:
    """Return callbacks for `model.fit` that report each epoch's logs (`loss`, `val_loss`, ...).

    They leave out logs that are no single number, such as those of a metric with one number per
    class, and warn of these once in each `fit`.

    If a rule of `stopping=` stops the trial, `fit` ends after the epoch, as with Keras' own
    EarlyStopping, and the value that the train function then returns counts. In `hyperband_search`
    `fit` ends after the last epoch that the trial may train, so `epochs=` need only be enough.

    After a lost attempt whose checkpoint Keras restores, the History that `fit` returns has the
    epochs of all attempts, and no epoch is trained beyond the last one that the trial may train;
    not so in a function that calls `fit` several times.

    The curves go to the trial's single TensorBoard run. Keras' own TensorBoard callback makes two
    more runs per trial, and above 500 runs TensorBoard's pages start empty; it may be added, too.
    """
    import keras

    class Reporter(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
        warned = False
        epochs: EpochsOfFit | None = None  # None outside a trial
        resumed: int | None = None  # the epoch to begin with, where none is to be trained

        def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
            self.warned = False
            self.epochs = _begin()
            context, history = current(), getattr(self.model, "history", None)
            limited = context is not None and context.max_steps is not None
            if limited and isinstance(history, keras.callbacks.History):
                _when_begun(history, self.end_if_done)

        def end_if_done(self) -> None:
            context, resumed = current(), getattr(self.model, "_initial_epoch", None) or 0
            known = self.epochs is not None and self.epochs.has_all_before(resumed)
            if known and context is not None and context.has_done(resumed - 1):
                context.ends_itself = True
                self.resumed = resumed
                self.model._initial_epoch = sys.maxsize

        def on_train_end(self, logs: Mapping[str, Any] | None = None) -> None:
            if self.resumed is not None:
                self.model._initial_epoch = self.resumed
                self.resumed = None
            history = getattr(self.model, "history", None)
            if self.epochs is not None and isinstance(history, keras.callbacks.History):
                self.epochs.complete(history)

        def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
            context, counted = current(), epoch
            if context is not None:  # Keras counts from 0 in each fit, a curve continues
                context.epoch = epoch = max(epoch, context.epoch + 1)
            numbers = numbers_in(logs or {})
            left_out = [name for name in logs or {} if name not in numbers]
            if left_out and not self.warned:
                warnings.warn(
                    f"{', '.join(map(repr, left_out))}: not reported, since what Keras logs of it "
                    "is no single number",
                    stacklevel=2,
                )
                self.warned = True
            take_report(epoch, numbers)
            if self.epochs is not None:
                self.epochs.add(counted, numbers)
            if context is not None and context.has_done(epoch):
                context.ends_itself = True  # reports after the fit do not end the trial
                self.model.stop_training = True
            repeated = context is not None and context.repeats > 1  # it ends after this repeat
            if context is not None and not repeated and (reason := context.link.stop()):
                context.stopped = reason
                self.model.stop_training = True

    return [Reporter()]


def _begin() -> EpochsOfFit | None:
    """Return the epochs of a `fit` that begins; None outside a trial."""
    context = current()
    if context is None:
        return None
    if context.trained is None:
        context.trained = TrainedEpochs(context.folder, writes=context.rank == 0)
    return context.trained.begin(context.repeat)


def _when_begun(history: Any, act: Callable[[], None]) -> None:
    """Call a function when `fit` has called `on_train_begin` of all callbacks.

    Some of them restore checkpoints, and Keras puts its History after those of the user.
    """

    def on_train_begin(logs: Mapping[str, Any] | None = None) -> None:
        del history.on_train_begin  # the one of the class is next
        history.on_train_begin(logs)
        act()

    history.on_train_begin = on_train_begin
