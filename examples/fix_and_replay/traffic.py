"""Two hours of payments up to this moment, and what became known of some of them: payments.jsonl and labels.csv."""

import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

PAYMENTS, CARDS = 20_000, 400
now, chance = datetime.now(UTC), random.Random(9)


def payment(card: str, at: datetime, *, declined: bool) -> dict[str, object]:
    return {
        "card": card,
        "shop": f"s{chance.randrange(50)}",
        "amount": round(chance.lognormvariate(3, 1), 2),
        "outcome": "declined" if declined else "approved",
        "at": at.isoformat(),
    }


# Cards are not alike: a few pay all day. One payment in thirty is declined.
records = [
    payment(
        f"c{int(CARDS * chance.random() ** 3)}",
        now - timedelta(seconds=60 + 7_000 * chance.random()),
        declined=chance.random() < 1 / 30,
    )
    for _ in range(PAYMENTS)
]
# And somebody tries a card that is not his: five times in vain, then with success.
stolen = [payment("c-stolen", now - timedelta(seconds=50 - 8 * n), declined=n < 5) for n in range(6)]
records = sorted([*records, *stolen], key=lambda record: str(record["at"]))
Path("payments.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))

known = [*chance.sample(records[PAYMENTS // 2 :], 500), stolen[-1]]
rows = [f"{r['card']},{r['at']},{r['amount']},{int(r is stolen[-1])}\n" for r in known]
Path("labels.csv").write_text("card,at,amount,fraud\n" + "".join(rows))
