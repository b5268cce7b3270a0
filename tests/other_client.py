"""A slot written from docs/internals/messages.md alone: gRPC and `json`.

It shares no code with ours, so that the description is shown to be enough to write another.
"""

from __future__ import annotations

import json
import secrets
import time

import grpc

_AGAIN = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


class Slot:
    """The connection of one slot. A context manager.

    Args:
        target: "host:port" of the driver.
        token: The token of the run.
        certificate: The certificate of the run, in PEM.
        name: The name of the slot, "<job>.<partition>.<task attempt>".
    """

    def __init__(self, target, token, certificate, name):
        credentials = grpc.ssl_channel_credentials(certificate.encode())
        options = [("grpc.ssl_target_name_override", "experiment-run")]
        self._channel = grpc.secure_channel(target, credentials, options)
        self._token, self._name = token, name
        self._key = secrets.token_hex(16)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._channel.close()

    def call(self, method, **message):
        """Return the answer to a message."""
        data = json.dumps({"slot": self._name, **message}).encode()
        give_up = time.monotonic() + 600
        while True:
            metadata = [("authorization", f"Bearer {self._token}"), ("attempt-key", self._key)]
            try:
                answer, call = self._channel.unary_unary(f"/experiment.Channel/{method}").with_call(
                    data, timeout=20, metadata=metadata
                )
            except grpc.RpcError as error:
                if error.code() not in _AGAIN or time.monotonic() > give_up:
                    raise
                time.sleep(0.5)
            else:
                self._key = dict(call.trailing_metadata()).get("attempt-key", self._key)
                return json.loads(answer)

    def run(self, train):
        """Run trials until there are no more; return their number.

        Args:
            train: Takes the hyperparameters and a function that reports metrics at a step and
                returns why the trial is to stop, or ''. Returns a value and why it stopped.
        """
        self.call("Hello", host="elsewhere")
        answer, count = self.call("Next"), 0
        while answer["type"] != "stop":
            if answer["type"] == "wait":
                answer = self.call("Next")
                continue
            outcome = self._run(train, answer)
            answer, count = self.call("Next", attempt=answer["number"], outcome=outcome), count + 1
        return count

    def _run(self, train, work):
        trial, last, began = {"trial": work["trial"]["id"]}, None, time.monotonic()

        def report(step, **metrics):
            nonlocal last
            last = step
            reports = [{"step": step, "metrics": metrics}]
            heard = self.call("Report", **trial, attempt=work["number"], reports=reports)
            return heard["stop"]

        params = {name: _value(value) for name, value in work["trial"]["params"].items()}
        value, reason, error = None, "", None
        try:
            value, reason = train(report, **params)
        except Exception as problem:
            error = {"kind": "user error", "message": str(problem), "traceback": ""}
        return {
            **trial,
            "status": "failed" if error else "stopped" if reason else "finished",
            "value": value,
            "objective": None if error else "score",
            "metrics": {} if error else {"score": value},
            "error": error,
            "seconds": time.monotonic() - began,
            "reason": reason,
            "step": last,
        }


def _value(value):
    if isinstance(value, list):
        return [_value(item) for item in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "float":
        return float(content)
    if kind == "tuple":
        return tuple(_value(item) for item in content)
    return {key: _value(item) for key, item in content}
