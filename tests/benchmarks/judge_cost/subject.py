"""The record that everybody judges, and what a talkative but sane model would say about it."""

from __future__ import annotations

QUESTION = (
    "How long do I have to return a pair of shoes that I bought in the online shop, and what will it cost me?"
)

ANSWER = (
    "You can return shoes that you bought in the online shop within 30 days of the day on which "
    "they were delivered. The shoes have to be unworn and in their original box, otherwise the "
    "return may be turned down. Sending them back is free of charge if you use the return label "
    "that you find in your customer account. Without the label you pay the postage of 4.95 euros "
    "yourself. The purchase price is refunded to the card that you paid with. You will see the "
    "refund on your account within five working days after the parcel has reached our warehouse."
)

CLAIMS = (
    "Shoes bought in the online shop can be returned within 30 days of delivery.",
    "Returned shoes have to be unworn and in their original box.",
    "Returning shoes is free of charge with the return label from the customer account.",
    "Without the return label the customer pays the postage of 4.95 euros.",
    "The purchase price is refunded to the card that was used for the payment.",
    "The refund is visible within five working days after the parcel has reached the warehouse.",
)

QUOTES = (
    "articles from our online shop within 30 days of delivery",
    "unworn, complete and in the original box",
    "print the prepaid return label from your customer account",
    "the postage of 4.95 euros is at your expense",
    "we pay the purchase price back by the means of payment that you used",
    "within five working days of its arrival in the warehouse",
)

CHUNKS = (
    (
        "Returns, part 1: the period. You may send back articles from our online shop within 30 "
        "days of delivery. The period begins on the day after the day on which you, or a person "
        "named by you, received the last article of the order. It is kept if the parcel is handed "
        "to the carrier before it ends. For orders that are delivered in several parcels the day "
        "of the last parcel counts. Articles bought in a branch follow the rules printed on the "
        "receipt, which may differ from branch to branch and are not covered by this page. During "
        "the holiday season, that is for orders placed between the first of November and the "
        "twenty-fourth of December, the period is extended until the thirty-first of January of "
        "the following year. Gift cards, custom-made articles and sealed hygiene articles whose "
        "seal was broken cannot be returned. If you are not sure whether an article can be "
        "returned, the product page says so below the size chart, and so does the confirmation of "
        "your order. Returns that are sent off later are accepted as a favour only and are "
        "answered with a voucher. If the thirtieth day falls on a Sunday or a public holiday, the "
        "period ends on the next working day. The day on which a parcel was left with a neighbour "
        "counts as the day of its delivery, and so does the day on which it was put into a parcel "
        "locker. Please keep the receipt of the carrier until the refund has arrived."
    ),
    (
        "Returns, part 2: the condition. Shoes have to come back unworn, complete and in the "
        "original box. Please try them on indoors on a clean carpet. Boxes are part of the "
        "article: do not stick the label on the box, put it into an outer carton instead. If "
        "shoes come back with traces of wear we may refuse the return or deduct a compensation "
        "for the loss of value, which depends on the condition and is told to you before the "
        "refund is made. Clothes have to come back with all their tags. Electronic articles have "
        "to be reset, and accounts that were linked to them have to be removed before they are "
        "sent. Every return is examined by hand. A return that was refused is sent back to you "
        "free of charge, together with a letter that names the reason and tells you whom to ask. "
        "If the original box was damaged on its way to you, please write so on the return slip "
        "and add a photograph if you can. Insoles, laces and cleaning cloths that came with the "
        "shoes belong to the article and have to be sent back with it. Articles from different "
        "orders may travel in one parcel if each has its own return slip. We do not need a reason "
        "for the return, but we are glad about one, because it helps us to mend our size charts."
    ),
    (
        "Returns, part 3: the way. To return an article, print the prepaid return label from your "
        "customer account, or show its code at a drop-off point. With the label the return is "
        "free for you. If you send the parcel without the label, the postage of 4.95 euros is at "
        "your expense, and it may take longer until we can assign the parcel to your order. "
        "Parcels heavier than twenty kilograms are collected by a forwarding agent at no charge; "
        "please make an appointment by telephone. From abroad the label of your country's partner "
        "carrier is to be used. We cannot take returns at our headquarters in person, and we "
        "cannot accept parcels that are sent freight collect. The label is valid for sixty days "
        "after it was made. If it has expired, a new one can be made in the customer account at "
        "any time, also for a part of the order. Drop-off points are listed on a map; most of "
        "them are open until eight in the evening. The receipt that you are given there is your "
        "proof, so please keep it. If you have no printer, the staff of the drop-off point print "
        "the label for you at no charge."
    ),
    (
        "Refunds. After the examination of the return we pay the purchase price back by the means "
        "of payment that you used: card, direct debit, or purchase on account. You see the refund "
        "on your account within five working days of its arrival in the warehouse, at the busiest "
        "times of the year within ten. Costs of the first delivery are refunded where the whole "
        "order is sent back, but not the surcharge for express delivery. Where a voucher was "
        "redeemed, its value is restored to the voucher and not paid out. Where an order was paid "
        "in instalments, the instalments are adjusted. You get a message by e-mail as soon as the "
        "refund is on its way to your bank. If the refund does not show up in time, please have a "
        "look at the bank's list of pending transactions first and then write to us with the "
        "number of the order. Refunds to accounts that were closed in the meantime come back to "
        "us after about ten days and are then paid out by cheque. Interest is not paid. Amounts "
        "below one euro are credited to the customer account unless you ask for them to be "
        "transferred."
    ),
    (
        "About us. Our shop began in 1987 as a small shoemaker's workshop near the harbour. Today "
        "about four hundred people work in nine branches, two warehouses and the headquarters. We "
        "repair shoes of every brand, whether they were bought from us or not, and have trained "
        "more than sixty apprentices in the craft. In 2016 the online shop was opened, which now "
        "makes up more than half of our sales. We ship to fourteen countries in Europe. Twice a "
        "year we invite our customers to an open day in the workshop, with guided tours, a "
        "raffle, and coffee and cake. All proceeds of the raffle go to the local school for young "
        "people who want to learn a trade with their hands. The founder's granddaughter has led "
        "the company since 2009. Under her the warehouse was fitted with solar panels, and the "
        "vans that supply the branches were replaced by electric ones. The company takes part in "
        "the town's summer festival with a stall where children can sew their own leather purses. "
        "A small museum above the oldest branch shows lasts, tools and catalogues from four "
        "decades; it is open on the first Saturday of each month."
    ),
)

SUPPORTING_CHUNK = (1, 2, 3, 3, 4, 4)
"""The number of the chunk that supports each claim."""
