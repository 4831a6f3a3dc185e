locals {
  groups = merge(
    { jobs = "Workers of the job runs" },
    var.airflow ? { airflow = "Airflow's scheduler, workers and web server" } : {},
    var.kafka ? { kafka = "Brokers" } : {},
  )
}

resource "aws_security_group" "this" {
  for_each = local.groups

  #checkov:skip=CKV2_AWS_5:it is put on the applications, Airflow or the brokers in the modules that make those
  name        = "${var.context.name}-${each.key}"
  description = each.value
  vpc_id      = local.vpc
  tags        = { Name = "${var.context.name}-${each.key}" }
}

resource "aws_security_group" "endpoints" {
  count = var.endpoints ? 1 : 0

  name        = "${var.context.name}-endpoints"
  description = "Endpoints to AWS"
  vpc_id      = local.vpc
  tags        = { Name = "${var.context.name}-endpoints" }
}

resource "aws_vpc_security_group_ingress_rule" "endpoints" {
  count = var.endpoints ? 1 : 0

  security_group_id = aws_security_group.endpoints[0].id
  description       = "TLS from the VPC"
  cidr_ipv4         = local.cidr
  ip_protocol       = "tcp"
  from_port         = 443
  to_port           = 443
}

# Driver and executors talk to each other on any port, and so do the parts of MWAA.
resource "aws_vpc_security_group_ingress_rule" "own" {
  for_each = setintersection(keys(local.groups), ["jobs", "airflow"])

  security_group_id            = aws_security_group.this[each.key].id
  description                  = "Among themselves"
  referenced_security_group_id = aws_security_group.this[each.key].id
  ip_protocol                  = "-1"
}

resource "aws_vpc_security_group_egress_rule" "out" {
  for_each = setintersection(keys(local.groups), ["jobs", "airflow"])

  # S3's gateway has public addresses and existing brokers are anywhere; the VPC has no way to the internet but the one it is given.
  security_group_id = aws_security_group.this[each.key].id
  description       = "To AWS, the brokers and among themselves"
  cidr_ipv4         = "0.0.0.0/0"
  ip_protocol       = "-1"
}

resource "aws_vpc_security_group_ingress_rule" "kafka" {
  count = var.kafka ? 1 : 0

  security_group_id            = aws_security_group.this["kafka"].id
  description                  = "Job runs, signed in with IAM"
  referenced_security_group_id = aws_security_group.this["jobs"].id
  ip_protocol                  = "tcp"
  from_port                    = 9098
  to_port                      = 9098
}
