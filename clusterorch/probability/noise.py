"""Here lives the noise: every draw is a function of where it is used, and of nothing else.

Philox turns a key (root seed, domain, instance, episode) and a counter (slice, entity,
channel) into random words.  No generator is advanced, so a draw does not depend on batch
size, worker or order of evaluation, and a counterfactual reads the same noise again.

The counter has four 32-bit words:

* telemetry, one word a draw: (slice, entity, channel // 4, 0), word channel % 4;
* rare events, two words a draw: (slice, entity, channel // 2, 1), words 2 * (channel % 2)
  and the next.

The last word keeps the two apart, so their channels are numbered independently.
"""

import hashlib
import json
import operator
from functools import lru_cache

import numpy as np
from numba import njit

from clusterorch.probability.elementary import float_of

Key = tuple[int, int]

_MASK = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)
_MULTIPLIER_0 = np.uint64(0xD2511F53)
_MULTIPLIER_1 = np.uint64(0xCD9E8D57)
_WEYL_0 = np.uint64(0x9E3779B9)  # golden ratio
_WEYL_1 = np.uint64(0xBB67AE85)  # sqrt(3) - 1
_TWO_52_BITS = np.uint64(0x4330000000000000)
_HALF_BELOW_TWO_52 = 2.0**52 - 0.5
_20 = np.uint64(20)
_12 = np.uint64(12)
_TELEMETRY = np.uint64(0)
_CAUSAL = np.uint64(1)


@njit(cache=True, error_model="numpy", forceinline=True)
def philox4x32(c0: int, c1: int, c2: int, c3: int, k0: int, k1: int) -> tuple[int, int, int, int]:
    """Philox4x32-10: four random 32-bit words, held in uint64, of a counter under a key.

    All arguments lie in 0..2**32 - 1, so slices, entities and channels do too.
    Source: Salmon, Moraes, Dror & Shaw (2011), "Parallel random numbers: as easy as 1, 2, 3".
    """
    c0, c1, c2, c3 = np.uint64(c0), np.uint64(c1), np.uint64(c2), np.uint64(c3)
    k0, k1 = np.uint64(k0), np.uint64(k1)
    for _ in range(10):
        product_0 = _MULTIPLIER_0 * c0
        product_1 = _MULTIPLIER_1 * c2
        c0 = (product_1 >> _32) ^ c1 ^ k0
        c1 = product_1 & _MASK
        c2 = (product_0 >> _32) ^ c3 ^ k1
        c3 = product_0 & _MASK
        k0 = (k0 + _WEYL_0) & _MASK
        k1 = (k1 + _WEYL_1) & _MASK
    return c0, c1, c2, c3


@lru_cache(maxsize=256)
def domain_key(root_seed: int, domain: int | str, high_limbs: tuple[int, int] = (0, 0)) -> Key:
    """Key of a root seed and a domain: the first 64 bits of SHA-256 of their JSON text.

    JSON separates the fields and tells 1 from "1", so distinct arguments hash distinct
    texts.  `high_limbs` are the bits above 64 of instance and episode.
    """
    domain = domain if isinstance(domain, str) else operator.index(domain)
    text = json.dumps([operator.index(root_seed), domain, *high_limbs])
    digest = hashlib.sha256(text.encode()).digest()
    return int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:8], "little")


@njit(cache=True, error_model="numpy")
def instance_key(k0: int, k1: int, instance: int, episode: int) -> Key:
    """Key of one instance and episode (each 0..2**64 - 1) under a domain key.

    Two words of Philox, so neighbouring instances get unrelated keys and a kernel can key
    a batch without Python.
    """
    instance, episode = np.uint64(instance), np.uint64(episode)
    words = philox4x32(instance & _MASK, instance >> _32, episode & _MASK, episode >> _32, k0, k1)
    return words[0], words[1]


def stream_key(root_seed: int, domain: int | str, instance: int, episode: int) -> Key:
    """Key of one stream of noise; the integers may have any size and sign.

    `instance_key` of `domain_key`.  Two of n streams share a key with probability about
    n**2 / 2**65.
    """
    instance, episode = operator.index(instance), operator.index(episode)
    k0, k1 = domain_key(root_seed, domain, (instance >> 64, episode >> 64))
    k0, k1 = instance_key(k0, k1, np.uint64(instance % 2**64), np.uint64(episode % 2**64))
    return int(k0), int(k1)


@njit(cache=True, error_model="numpy", forceinline=True)
def uniform32(word: int) -> float:
    """(word + 1/2) / 2**32, exactly: inside (0, 1), symmetric about 1/2."""
    return (float_of(np.uint64(word) | _TWO_52_BITS) - _HALF_BELOW_TWO_52) * 2.0**-32


@njit(cache=True, error_model="numpy", forceinline=True)
def uniform64(high: int, low: int) -> float:
    """The 52 leading bits of two words plus 1/2, over 2**52: the odd multiples of 2**-53."""
    bits = (np.uint64(high) << _20) | (np.uint64(low) >> _12)
    return (float_of(bits | _TWO_52_BITS) - _HALF_BELOW_TWO_52) * 2.0**-52


@njit(cache=True, error_model="numpy", forceinline=True)
def telemetry_uniform(slice_index: int, entity: int, channel: int, k0: int, k1: int) -> float:
    """The draw, in (0, 1), of one telemetry channel of one entity: what `fill_uniform` fills."""
    channel = np.uint64(channel)
    block, word = channel >> np.uint64(2), channel & np.uint64(3)
    w0, w1, w2, w3 = philox4x32(slice_index, entity, block, _TELEMETRY, k0, k1)
    low = w1 if word == np.uint64(1) else w0
    high = w3 if word == np.uint64(3) else w2
    return uniform32(high if word >= np.uint64(2) else low)


@njit(cache=True, error_model="numpy", forceinline=True)
def causal_uniform(slice_index: int, entity: int, channel: int, k0: int, k1: int) -> float:
    """A 53-bit draw in (0, 1) for rare events: resolves probabilities down to 2**-52."""
    channel = np.uint64(channel)
    w0, w1, w2, w3 = philox4x32(slice_index, entity, channel >> np.uint64(1), _CAUSAL, k0, k1)
    second = (channel & np.uint64(1)) == np.uint64(1)
    return uniform64(w2 if second else w0, w3 if second else w1)


@njit(cache=True, error_model="numpy")
def fill_uniform(out: np.ndarray, slice_index: int, first_entity: int, channel: int, key: Key) -> None:
    """Fill out[e] with the draw of `channel` of entity first_entity + e.  [E] float64

    Not float32: the largest draws would round to 1.
    """
    k0, k1 = np.uint64(key[0]), np.uint64(key[1])
    first = np.uint64(first_entity)
    for e in range(out.shape[0]):
        out[e] = telemetry_uniform(slice_index, first + np.uint64(e), channel, k0, k1)


@njit(cache=True, error_model="numpy")
def fill_uniform_block(out: np.ndarray, slice_index: int, first_entity: int, block: int, key: Key) -> None:
    """Fill out[j, e] with channel 4 * block + j of entity first_entity + e.  [4, E] float64

    The same draws as four calls of `fill_uniform`, at a quarter of the price.
    """
    k0, k1 = np.uint64(key[0]), np.uint64(key[1])
    first = np.uint64(first_entity)
    row0, row1, row2, row3 = out[0], out[1], out[2], out[3]
    for e in range(out.shape[1]):
        w0, w1, w2, w3 = philox4x32(slice_index, first + np.uint64(e), block, _TELEMETRY, k0, k1)
        row0[e] = uniform32(w0)
        row1[e] = uniform32(w1)
        row2[e] = uniform32(w2)
        row3[e] = uniform32(w3)
