locals {
  airflow_services   = var.airflow ? ["airflow.api", "airflow.env", "airflow.ops"] : []
  interface_services = toset(var.endpoints ? concat(var.interface_services, local.airflow_services) : [])
}

resource "aws_vpc_endpoint" "s3" {
  count = var.endpoints && length(local.routes) > 0 ? 1 : 0

  vpc_id            = local.vpc
  vpc_endpoint_type = "Gateway"
  service_name      = "com.amazonaws.${var.context.region}.s3"
  route_table_ids   = local.routes
  tags              = { Name = "${var.context.name}-s3" }
}

resource "aws_vpc_endpoint" "interface" {
  for_each = local.interface_services

  vpc_id              = local.vpc
  vpc_endpoint_type   = "Interface"
  service_name        = "com.amazonaws.${var.context.region}.${each.key}"
  subnet_ids          = local.subnets
  security_group_ids  = [aws_security_group.endpoints[0].id]
  private_dns_enabled = true
  tags                = { Name = "${var.context.name}-${replace(each.key, ".", "-")}" }
}
