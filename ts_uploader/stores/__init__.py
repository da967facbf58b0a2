"""The stores of the topics: opened, checked, admitted."""
