"""Request processors, one a file: each takes its codes by ``register(dispatcher)``."""
