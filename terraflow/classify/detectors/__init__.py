"""The table of detectors, by type of identifier. To add one, add a row to the module it belongs to."""

from __future__ import annotations

from terraflow.classify.detectors.bank import BANK
from terraflow.classify.detectors.cards import CARDS
from terraflow.classify.detectors.contact import CONTACT
from terraflow.classify.detectors.national import NATIONAL
from terraflow.classify.detectors.row import Detector
from terraflow.classify.detectors.secrets import STRUCTURED
from terraflow.classify.detectors.tokens import ISSUED

DETECTORS: tuple[Detector, ...] = CARDS + BANK + NATIONAL + CONTACT + STRUCTURED + ISSUED

__all__ = ["DETECTORS", "Detector"]
