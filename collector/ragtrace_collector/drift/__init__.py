"""The drift check: is the judge still the one that the scores of last week came from?"""
