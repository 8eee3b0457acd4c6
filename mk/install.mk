# Installing.
