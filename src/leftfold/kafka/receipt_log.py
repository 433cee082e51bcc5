"""Receipts in their topic: what each batch of each view did.

Fencing is not needed: two writers of one key write the same offsets and counts. Only the time of writing, and how often
they wrote, may differ.
"""

from __future__ import annotations

from typing import ClassVar

from leftfold.errors import LogError
from leftfold.kafka.document_log import DocumentLog


class ReceiptLog(DocumentLog):
    """The receipts of one namespace."""

    purpose: ClassVar[str] = "every batch leaves a receipt there"

    def _not_written(self, scope: str, why: str) -> LogError:
        return LogError(
            "receipt-not-written",
            f"the receipt of {scope} was not acknowledged by {self._topic}",
            why=why,
            state="the batch is written but not committed; it runs again with the same records and writes the same "
            "receipt, whether this one is in the topic or not",
            fix="leftfold status shows whether the brokers run",
            retriable=True,
        )
