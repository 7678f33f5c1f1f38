SOURCE_HASH: bytes
HASH_SEED_SIZE: int

def set_hash_seed(seed: bytes) -> bool: ...
