"""Stand-ins for `bench`: a meter that is told the noise, and scripted peers."""

from pagelm.host.bench.sample import Sample


class FakeMeter:
    """`noise`: the answers to every watch, in order, in cores of other work; after them 0."""

    def __init__(self, noise=()):
        self.noise = list(noise)
        self.watched = []

    def start(self, roots):
        self.watched.append(frozenset(roots))
        return lambda: self.noise.pop(0) if self.noise else 0.0


class FakePeer:
    """Notes its name in `order`; gives the next of `samples`, (first_s, total_s); the last one stays."""

    version = "1.2.3"

    def __init__(self, name, samples=((1.0, 2.0),), order=None, roots=(), prompt_tokens=16, gen=4):
        self.name = name
        self.about = {"threads": 2, "device": "paper"}
        self.roots = roots
        self.samples = list(samples)
        self.order = order if order is not None else []
        self.counts = (prompt_tokens, gen)
        self.closed = False

    async def generate(self):
        self.order.append(self.name)
        first_s, total_s = self.samples.pop(0) if len(self.samples) > 1 else self.samples[0]
        return Sample(*self.counts, first_s, total_s)

    async def close(self):
        self.closed = True
