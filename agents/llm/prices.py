"""What tokens cost: prices that the user gives, else those of the genai-prices package where it is installed."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from warpsmith.agents.llm.endpoint import Endpoint
from warpsmith.agents.llm.records import Usage
from warpsmith.kernels.errors import UserError

PRICE_VARIABLE = "WARPSMITH_PRICE"

_PRICE = re.compile(r"^(?:(?P<model>[^=]+)=)?(?P<input>[\d.]+)/(?P<output>[\d.]+)(?:/(?P<cached>[\d.]+))?$")


@dataclass(frozen=True, slots=True)
class Price:
    """USD per million tokens."""

    input: float
    output: float
    cached: float | None = None
    """Of prompt tokens that the server took from its cache; None: as any other."""

    def cost(self, usage: Usage) -> float:
        """USD."""
        cached = usage.cached_tokens if self.cached is not None else 0
        fresh = (usage.prompt_tokens - cached) * self.input + cached * (self.cached or 0.0)
        return (fresh + usage.completion_tokens * self.output) / 1e6


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices by model. The user's own come first."""

    given: Mapping[str, Price] = field(default_factory=dict)
    """Model -> price; the empty name is for every model."""

    @classmethod
    def usual(cls, texts: Sequence[str] = ()) -> Prices:
        """Those of the texts, and of $WARPSMITH_PRICE where they leave it open; there commas part several."""
        named = [text for text in os.environ.get(PRICE_VARIABLE, "").split(",") if text.strip()]
        return cls({**cls.parse(named).given, **cls.parse(texts).given})

    @classmethod
    def parse(cls, texts: Sequence[str]) -> Prices:
        """From `IN/OUT`, `IN/OUT/CACHED` or `MODEL=IN/OUT`; UserError says how to write it."""
        given = {}
        for text in texts:
            match = _PRICE.match(text.strip())
            try:
                numbers = [float(match[name]) for name in ("input", "output")] if match else []
                cached = float(match["cached"]) if match and match["cached"] else None
            except ValueError:
                match = None
            if match is None:
                raise UserError(
                    f"price {text!r}: write USD per million tokens as IN/OUT or IN/OUT/CACHED, for one of several "
                    "models as MODEL=IN/OUT, e.g. --price 0.5/1.5"
                )
            given[(match["model"] or "").strip()] = Price(numbers[0], numbers[1], cached)
        return cls(given)

    def cost(self, endpoint: Endpoint, usage: Usage) -> float | None:
        """USD; None where the price is not known. A model of this process has none to pay."""
        if endpoint.in_process:
            return 0.0
        price = self.given.get(endpoint.model) or self.given.get("")
        if price is not None:
            return price.cost(usage)
        return _listed(endpoint, usage)

    def require_use(self, models: Collection[str]) -> None:
        """UserError where a price is meant for a model that is not asked: a name mistyped is a price not counted."""
        idle = [name for name in self.given if name and name not in models]
        if idle:
            raise UserError(
                f"--price names {', '.join(idle)}, which no role asks; the models asked are {', '.join(sorted(models))}"
            )

    def require(self, endpoints: Sequence[Endpoint]) -> None:
        """UserError where the price of one of them is not known: a cap on money could not be kept."""
        unknown = [str(e) for e in endpoints if self.cost(e, Usage(prompt_tokens=1, completion_tokens=1)) is None]
        if unknown:
            listed = "" if _installed() else " (or pip install genai-prices for the list prices of hosted models)"
            raise UserError(
                f"--max-cost cannot be kept: the price of {', '.join(unknown)} is not known. Give it with --price "
                f"IN/OUT in USD per million tokens, 0/0 for a server of your own{listed}; or use --max-tokens"
            )


def _installed() -> bool:
    return importlib.util.find_spec("genai_prices") is not None


def _listed(endpoint: Endpoint, usage: Usage) -> float | None:
    """By the package's list, which knows hosted models by name and address. A server of one's own has no list price,
    whatever the name of the model that it serves."""
    if endpoint.local or not _installed():
        return None
    import genai_prices

    counted = genai_prices.Usage(
        input_tokens=usage.prompt_tokens, output_tokens=usage.completion_tokens, cache_read_tokens=usage.cached_tokens
    )
    try:
        return float(genai_prices.calc_price(counted, endpoint.model, provider_api_url=endpoint.base_url).total_price)
    except (LookupError, ValueError):
        return None
