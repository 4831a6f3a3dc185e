locals {
  create = var.existing == null
  vpc    = local.create ? aws_vpc.this[0].id : var.existing.vpc_id
  # What is in the VPC reaches the endpoints, and nothing else does.
  cidr    = local.create ? var.cidr : var.existing.cidr
  subnets = local.create ? [for zone in var.zones : aws_subnet.private[zone].id] : var.existing.subnet_ids
  routes  = local.create ? aws_route_table.private[*].id : var.existing.route_table_ids
}

resource "aws_vpc" "this" {
  count = local.create ? 1 : 0

  cidr_block           = var.cidr
  enable_dns_support   = true
  enable_dns_hostnames = true
  tags                 = { Name = "${var.context.name}-vpc" }
}

# Whatever is put into the VPC without a group of its own reaches nothing.
resource "aws_default_security_group" "this" {
  count = local.create ? 1 : 0

  vpc_id = aws_vpc.this[0].id
  tags   = { Name = "${var.context.name}-default" }
}

# There is no gateway to the internet: what the jobs need of AWS they reach by the endpoints.
resource "aws_subnet" "private" {
  for_each = toset(local.create ? var.zones : [])

  vpc_id                  = aws_vpc.this[0].id
  availability_zone       = each.key
  cidr_block              = cidrsubnet(var.cidr, 3, index(var.zones, each.key))
  map_public_ip_on_launch = false
  tags                    = { Name = "${var.context.name}-private-${each.key}" }
}

resource "aws_route_table" "private" {
  count = local.create ? 1 : 0

  vpc_id = aws_vpc.this[0].id
  tags   = { Name = "${var.context.name}-private" }
}

resource "aws_route_table_association" "private" {
  for_each = aws_subnet.private

  subnet_id      = each.value.id
  route_table_id = aws_route_table.private[0].id
}
