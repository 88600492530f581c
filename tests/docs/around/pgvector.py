"""The function, in a call; a table of one row stands in for the database."""

# the block


class Cursor:
    def execute(self, statement, values):
        pass

    def fetchall(self):
        return [("faq-12", "Refunds take 14 days.", 0.1)]


@ragtrace.rag
def ask(question):
    return search(question, Cursor())[0]["text"]


ragtrace.instrument(service_name="support-bot")
ask("How long do refunds take?")
