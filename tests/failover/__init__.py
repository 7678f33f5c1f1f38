"""Three real servers of a cluster under faults, the histories that their clients saw, and checks of them."""
