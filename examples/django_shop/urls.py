"""The one page of the shop."""

from django.urls import path

from examples.django_shop.views import take_order

urlpatterns = [path("orders", take_order)]
