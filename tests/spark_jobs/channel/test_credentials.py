from __future__ import annotations

import itertools

import pytest
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.channel.credentials import AttemptKeys, Seal, SealBroken, make_certificate, new_key

FIRST = "f" * 32


def numbered():
    """Keys in the order in which they are made: 00...0, 00...1, ..."""
    counter = itertools.count()
    return AttemptKeys(lambda: f"{next(counter):032x}")


def test_a_slots_first_key_is_its_own_and_a_new_one_comes_with_each_attempt():
    keys = numbered()
    assert keys.admits("1.0.0", FIRST)
    second = keys.following("1.0.0")
    assert keys.admits("1.0.0", FIRST)  # the answer that brought the second may be lost
    assert keys.following("1.0.0") == second
    assert keys.admits("1.0.0", second)
    assert not keys.admits("1.0.0", FIRST)
    third = keys.following("1.0.0")
    assert len({FIRST, second, third}) == 3
    assert keys.admits("1.0.0", second)
    assert keys.admits("1.0.0", third)
    assert not keys.admits("1.0.0", second)


def test_slots_have_keys_of_their_own():
    keys = numbered()
    assert keys.admits("1.0.0", FIRST)
    assert keys.admits("1.1.0", "e" * 32)
    for slot, other in [("1.0.0", "1.1.0"), ("1.1.0", "1.0.0")]:
        assert not keys.admits(slot, keys.following(other))
    assert not keys.admits("1.1.0", FIRST)


@pytest.mark.parametrize("key", ["", "f" * 31, "f" * 33, "F" * 32, "f" * 31 + "\n", "\u0661" * 32])
def test_a_slot_cannot_bind_itself_to_something_else(key):
    keys = numbered()
    assert not keys.admits("1.0.0", key)
    assert keys.admits("1.0.0", FIRST)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("abc"), st.booleans())))
def test_a_key_is_admitted_for_the_slot_that_got_it_and_no_other(steps):
    keys = AttemptKeys()
    own = {slot: new_key() for slot in "abc"}
    for slot, key in own.items():
        assert keys.admits(slot, key)
    for slot, speaker, asks in steps:
        assert keys.admits(slot, own[speaker]) == (slot == speaker)
        if asks:
            own[speaker] = keys.following(speaker)
            assert keys.admits(speaker, own[speaker])


def test_keys_are_random_and_long():
    made = {new_key() for _ in range(100)}
    assert len(made) == 100
    assert {len(bytes.fromhex(key)) for key in made} == {16}


def test_a_certificate_is_for_any_time_and_its_key_for_one_run():
    (key, pem), (other, _) = make_certificate(), make_certificate()
    certificate = x509.load_pem_x509_certificate(pem)
    assert certificate.not_valid_before_utc.year == 1970
    assert certificate.not_valid_after_utc.year == 9999
    assert key != other


NAMES = st.text("ab1-.ü", max_size=10)
KEY, OTHER = Seal.new_key(), Seal.new_key()


@given(st.binary(max_size=2_000), NAMES)
def test_sealed_data_is_read_with_its_key_and_name(data, name):
    sealed = Seal(KEY).close(data, name)
    assert Seal(KEY).open(sealed, name) == data
    assert len(sealed) == len(data) + Seal.OVERHEAD
    assert Seal(KEY).close(data, name) != sealed  # nobody sees that two messages are the same


@given(st.binary(max_size=200), NAMES, st.data())
def test_changed_moved_or_truncated_data_is_refused(data, name, draw):
    sealed = Seal(KEY).close(data, name)
    place, flip = draw.draw(st.integers(0, len(sealed) - 1)), draw.draw(st.integers(1, 255))
    changed = sealed[:place] + bytes([sealed[place] ^ flip]) + sealed[place + 1 :]
    other = draw.draw(NAMES.filter(lambda text: text != name))
    for seal, given_data, label in [
        (Seal(KEY), changed, name),
        (Seal(KEY), sealed[:place], name),
        (Seal(KEY), sealed + b"\0", name),
        (Seal(KEY), sealed, other),
        (Seal(OTHER), sealed, name),
    ]:
        with pytest.raises(SealBroken):
            seal.open(given_data, label)


@given(st.binary(max_size=200))
def test_data_that_was_not_sealed_is_refused(data):
    with pytest.raises(SealBroken):
        Seal(KEY).open(data, "name")


def test_keys_of_seals_are_random_and_long():
    assert len({Seal.new_key() for _ in range(100)}) == 100
    assert len(bytes.fromhex(KEY)) == 32
