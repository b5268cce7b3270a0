"""Tags of the curves that show in TensorBoard how a search advances."""

BEST_SO_FAR = "search/best_so_far"
FRONT = "search/front"
BEST_OF_GENERATION = "generation/best"
