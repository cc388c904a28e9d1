"""Stripe's own SDK, for tests of whatever speaks its wire format.

stripe_sdk.py sign SECRET [SECONDS]   the header for the body on standard input
stripe_sdk.py verify SECRET HEADER    whether it is good for the body on standard input
stripe_sdk.py drive URL KEY           a customer's way through a provider at URL
"""

import json
import sys
import time
import urllib.error
import urllib.request

import stripe


def sign(secret, seconds=None):
    body = sys.stdin.buffer.read().decode()
    print(stripe.WebhookSignature.generate_signature_header(body, secret, seconds))


def verify(secret, header):
    body = sys.stdin.buffer.read().decode()
    try:
        stripe.WebhookSignature.verify_header(body, header, secret, stripe.Webhook.DEFAULT_TOLERANCE)
    except stripe.SignatureVerificationError:
        sys.exit("refused")
    print(json.loads(body)["type"])


def refused(error, code, call):
    try:
        call()
    except error as told:
        assert told.code == code, told
        return
    raise AssertionError(f"not refused: {code}")


class Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


def press(url):
    """The status and target of a button's answer."""
    try:
        answer = urllib.request.build_opener(Stay).open(urllib.request.Request(url, data=b""))
        return answer.status, answer.headers.get("location")
    except urllib.error.HTTPError as answer:
        return answer.code, answer.headers.get("location")


def drive(url, key):
    stripe.api_base, stripe.api_key, stripe.max_network_retries = url, key, 0
    start = int(time.time())
    customer = stripe.Customer.create(name="Ada", metadata={"org_id": "org_1"})
    assert stripe.Customer.retrieve(customer.id).metadata["org_id"] == "org_1"
    refused(stripe.InvalidRequestError, "resource_missing", lambda: stripe.Customer.retrieve("cus_none"))
    refused(stripe.AuthenticationError, None, lambda: stripe.Customer.list(api_key="sk_test_other"))

    def checkout(amount, **more):
        price = {"currency": "usd", "unit_amount": amount, "product_data": {"name": "Top-up"}}
        return stripe.checkout.Session.create(
            mode="payment",
            customer=customer.id,
            client_reference_id="topup_1",
            success_url="http://127.0.0.1:9/done?session={CHECKOUT_SESSION_ID}",
            cancel_url="http://127.0.0.1:9/back",
            line_items=[{"price_data": price, "quantity": 1}],
            payment_intent_data={"metadata": {"topup_id": "topup_1"}},
            **more,
        )

    # A key means one answer.
    session = checkout(500, idempotency_key="one")
    assert checkout(500, idempotency_key="one").id == session.id
    refused(stripe.IdempotencyError, None, lambda: checkout(501, idempotency_key="one"))
    refused(stripe.InvalidRequestError, "parameter_unknown", lambda: checkout(500, colour="red"))
    refused(stripe.InvalidRequestError, "amount_too_small", lambda: checkout(1))

    # A refused card leaves the session open; a good one completes it, once.
    assert (session.status, session.payment_status, session.payment_intent) == ("open", "unpaid", None)
    assert press(session.url + "/decline")[0] == 303
    assert press(session.url + "/cancel") == (303, "http://127.0.0.1:9/back")
    assert press(session.url + "/pay") == (303, "http://127.0.0.1:9/done?session=" + session.id)
    assert press(session.url + "/pay")[0] == 409
    session = stripe.checkout.Session.retrieve(session.id, expand=["payment_intent.latest_charge"])
    intent = session.payment_intent
    assert (session.status, session.payment_status, intent.status) == ("complete", "paid", "succeeded")
    assert intent.latest_charge.paid and intent.metadata["topup_id"] == "topup_1"
    charges = stripe.Charge.list(payment_intent=intent.id).data
    assert [charge.status for charge in charges] == ["succeeded", "failed"]

    # No more goes back than was paid.
    refund = stripe.Refund.create(payment_intent=intent.id, amount=200, idempotency_key="two")
    assert stripe.Refund.create(payment_intent=intent.id, amount=200, idempotency_key="two").id == refund.id
    more = lambda: stripe.Refund.create(payment_intent=intent.id, amount=301)
    refused(stripe.InvalidRequestError, "amount_too_large", more)
    assert stripe.Refund.create(payment_intent=intent.id).amount == 300
    more = lambda: stripe.Refund.create(payment_intent=intent.id)
    refused(stripe.InvalidRequestError, "charge_already_refunded", more)

    # Lists are complete over their pages.
    for amount in range(1000, 1012):
        press(f"{url}/sim/checkout/{checkout(amount).id}/pay")
    listed = stripe.PaymentIntent.list(created={"gte": start, "lt": start + 3600}, limit=5)
    listed = list(listed.auto_paging_iter())
    assert sorted(each.amount for each in listed) == [500, *range(1000, 1012)]
    assert len({each.id for each in listed}) == 13
    assert stripe.checkout.Session.expire(checkout(700).id).status == "expired"
    happened = stripe.Event.list(type="checkout.session.completed", limit=100).data
    assert len(happened) == 13 and happened[0].data.object.payment_status == "paid"


if __name__ == "__main__":
    {"sign": sign, "verify": verify, "drive": drive}[sys.argv[1]](*sys.argv[2:])
