"""Recording rules, alerts and dashboards: tables, and the files made from them."""
