"""The orders, one row each."""

from django.db import models


class Order(models.Model):
    """An order with its place in the topic, which makes it one row, however often it comes."""

    partition = models.PositiveIntegerField()
    offset = models.PositiveBigIntegerField()
    item = models.CharField(max_length=100)
    count = models.PositiveIntegerField()

    class Meta:
        """The place is the row's identity."""

        constraints = (models.UniqueConstraint(fields=["partition", "offset"], name="place_in_the_topic"),)
