"""What the applications know: the handbook of a small lamp shop, in eight chunks by their ids."""

CHUNKS = {
    "returns-window": "Unused lamps can be returned within 30 days of delivery. Later we offer store credit.",
    "returns-cost": "The buyer pays for the shipping of a return. We pay if the lamp arrived broken.",
    "refund-time": "A refund reaches the buyer's account within five working days after the return arrives.",
    "shipping-cost": "Shipping costs 4 euros. Orders above 60 euros ship for free.",
    "shipping-time": "Orders placed before noon leave the same day. Delivery takes two to three days.",
    "warranty-length": "The warranty on every lamp lasts 24 months. It starts on the day of delivery.",
    "warranty-cover": "The warranty covers driver and socket. It does not cover bulbs or broken glass.",
    "repair": "Repairs take about ten days. Spare shades and sockets are kept in stock for six years.",
}
