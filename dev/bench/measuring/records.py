"""The records of the benchmarks: values of about 300 bytes in the form of JSON, keys of 11 bytes."""

import random

VALUE_BYTES = 300


def json_value(generator: random.Random, number: int) -> bytes:
    """Return about 300 bytes of an event, about half of them random."""
    text = (
        f'{{"id":{number},"user":"user-{generator.randrange(100_000):06d}","event":"'
        f'{generator.choice(("view", "click", "purchase", "scroll"))}","url":"https://shop.example.com/product/'
        f'{generator.randrange(1_000_000)}","amount":{generator.random() * 1000:.2f},"session":"'
        f'{generator.getrandbits(128):032x}","agent":"{generator.choice(("Mozilla/5.0 (X11)", "curl/8.5"))}","tags":["'
    )
    while len(text) < VALUE_BYTES:
        text += f'{generator.choice(("summer", "sale", "new", "returning", "mobile"))}-{generator.randrange(1000)}","'
    return (text[: VALUE_BYTES - 3] + '"]}').encode()


def key(number: int) -> bytes:
    """Return the key of record `number`."""
    return f"key{number:08d}".encode()
