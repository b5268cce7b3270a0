import random

from search.direction import Direction
from search.fidelity.proposals import Modelled
from search.sequential.bayesian import DESIGN
from search.space.sampling import latin_hypercube
from search.space.spaces import Float, Space
from search.space.tried import Tried


def test_a_model_replaces_the_design_points_that_were_tried_or_are_not_allowed():
    domains = {"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)}
    space = Space(domains, constraint=lambda params: params["x"] < 0.75)
    design = latin_hypercube(DESIGN, len(space), random.Random(0))
    first = next(point for point in design if space.allows(point))
    rng = random.Random(0)
    tried = Tried(space, rng, [space.decode(first)])
    model = Modelled(space, Direction.MAX, rungs=2, tried=tried, rng=rng)
    points = [model.propose(number, []) for number in range(DESIGN)]
    assert all(map(tried.is_new, points))
    kept = [point for point in design if point in points]
    assert kept == [point for point in design if space.allows(point) and point is not first]
    assert len(kept) == DESIGN * 3 // 4 - 1
