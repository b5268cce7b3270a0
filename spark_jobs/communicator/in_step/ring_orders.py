"""The orders of several rings: whom each member sends to, as different in each as possible."""

from __future__ import annotations


def ring_orders(size: int, rings: int) -> list[tuple[int, ...]]:
    """Return the orders in which rings visit the members of a gang.

    Walecki's construction (see Alspach: The wonderful Walecki construction, 2008) cuts the complete
    graph into rings without a common edge; each is used in both directions. So no member sends to
    the same one in two rings, except in the last ring of an even number of members, for which such
    a ring does not exist in general (there is none for 4 members).

    Args:
        size: The number of members, at least 2.
        rings: The number of rings, from 1 to `size - 1`.

    Returns:
        For each ring the ranks in the order in which it visits them. The first order is 0, 1, 2,
        ..., the second one is its reverse.
    """
    places = {rank: place for place, rank in enumerate(_zigzag(size, 0))}
    found: list[tuple[int, ...]] = []
    for number in range((rings + 1) // 2):
        order = tuple(places[rank] for rank in _zigzag(size, number))
        found += [order, order[:1] + order[:0:-1]]
    return found[:rings]


def _zigzag(size: int, number: int) -> list[int]:
    """Return a ring through a centre, `size - 1`, and the others as points on a circle.

    It goes from point `number` to the next one, to the one before, to the one after the next, ...
    """
    points = size - 1
    steps = [(step + 1) // 2 * (1 if step % 2 else -1) for step in range(points)]
    return [points, *((number + step) % points for step in steps)]
