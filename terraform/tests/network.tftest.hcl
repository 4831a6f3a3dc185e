mock_provider "aws" {
  source = "./tests/mocks"
}

variables {
  context = {
    name       = "tailrace-test"
    account_id = "123456789012"
    region     = "eu-central-1"
  }
  zones       = ["eu-central-1a", "eu-central-1b"]
  kms_key_arn = "arn:aws:kms:eu-central-1:123456789012:key/11111111-2222-3333-4444-555555555555"
}

run "subnets_are_private_and_aws_is_reached_by_endpoints" {
  module {
    source = "./modules/network"
  }

  assert {
    condition     = length(aws_subnet.private) == 2 && alltrue([for one in values(aws_subnet.private) : !one.map_public_ip_on_launch])
    error_message = "a subnet in each zone, without public addresses"
  }
  assert {
    condition     = toset([for one in values(aws_subnet.private) : one.cidr_block]) == toset(["10.20.0.0/19", "10.20.32.0/19"])
    error_message = "subnets have room for workers, and do not overlap"
  }
  assert {
    condition     = toset(output.endpoint_services) == toset(["airflow.api", "airflow.env", "airflow.ops", "emr-serverless", "glue", "kms", "logs", "monitoring", "secretsmanager", "sqs", "sts"])
    error_message = "each service that is asked has an endpoint"
  }
  assert {
    condition     = aws_vpc_endpoint.s3[0].vpc_endpoint_type == "Gateway" && alltrue([for one in values(aws_vpc_endpoint.interface) : one.private_dns_enabled])
    error_message = "S3 by the gateway, the others under their usual names"
  }
  assert {
    condition     = aws_vpc_security_group_ingress_rule.endpoints[0].cidr_ipv4 == "10.20.0.0/16" && aws_vpc_security_group_ingress_rule.endpoints[0].from_port == 443 && aws_vpc_security_group_ingress_rule.endpoints[0].to_port == 443
    error_message = "endpoints take TLS from the VPC alone"
  }
  assert {
    condition     = aws_vpc.this[0].tags.Name == "tailrace-test-vpc" && aws_security_group.this["jobs"].name == "tailrace-test-jobs"
    error_message = "names begin with PROJECT-ENVIRONMENT"
  }
  assert {
    condition     = length(aws_flow_log.this) == 1 && aws_cloudwatch_log_group.flows[0].kms_key_id == var.kms_key_arn
    error_message = "flows are logged, encrypted"
  }
  assert {
    condition     = output.kafka_security_group_id == null
    error_message = "without MSK there is no group of it"
  }
}

run "an_existing_vpc_is_used_and_none_is_made" {
  module {
    source = "./modules/network"
  }
  variables {
    existing = {
      vpc_id     = "vpc-0a1b2c3d"
      cidr       = "10.99.0.0/16"
      subnet_ids = ["subnet-1", "subnet-2"]
    }
  }

  assert {
    condition     = length(aws_vpc.this) == 0 && length(aws_subnet.private) == 0 && length(aws_flow_log.this) == 0 && output.vpc_id == "vpc-0a1b2c3d" && output.subnet_ids == tolist(["subnet-1", "subnet-2"])
    error_message = "the existing VPC is the VPC"
  }
  assert {
    condition     = length(aws_vpc_endpoint.s3) == 0 && aws_vpc_security_group_ingress_rule.endpoints[0].cidr_ipv4 == "10.99.0.0/16"
    error_message = "without its route tables there is no gateway to S3"
  }
}

run "an_existing_vpc_with_its_endpoints_gets_groups_alone" {
  module {
    source = "./modules/network"
  }
  variables {
    existing = {
      vpc_id          = "vpc-0a1b2c3d"
      cidr            = "10.99.0.0/16"
      subnet_ids      = ["subnet-1", "subnet-2"]
      route_table_ids = ["rtb-1"]
    }
    endpoints = false
    airflow   = false
    kafka     = true
  }

  assert {
    condition     = length(aws_vpc_endpoint.interface) == 0 && length(aws_vpc_endpoint.s3) == 0 && length(aws_security_group.endpoints) == 0
    error_message = "no endpoints"
  }
  assert {
    condition     = toset(keys(aws_security_group.this)) == toset(["jobs", "kafka"]) && output.airflow_security_group_id == null
    error_message = "groups of what there is"
  }
  assert {
    condition     = aws_vpc_security_group_ingress_rule.kafka[0].from_port == 9098 && aws_vpc_security_group_ingress_rule.kafka[0].to_port == 9098
    error_message = "brokers are reached with IAM alone"
  }
}

run "bad_inputs_are_refused" {
  module {
    source = "./modules/network"
  }
  command = plan
  variables {
    cidr               = "10.20.0.0/28"
    zones              = ["eu-central-1a"]
    interface_services = ["sqs"]
    existing           = { vpc_id = "mine", cidr = "x", subnet_ids = ["subnet-1"] }
  }
  expect_failures = [var.cidr, var.zones, var.interface_services, var.existing]
}
