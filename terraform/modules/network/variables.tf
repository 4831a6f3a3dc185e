variable "existing" {
  description = "A VPC that is there already, with its private subnets and, for the gateway to S3, their route tables. null: one is made."
  type = object({
    vpc_id          = string
    cidr            = string
    subnet_ids      = list(string)
    route_table_ids = optional(list(string), [])
  })
  default = null

  validation {
    condition     = var.existing == null || can(regex("^vpc-[0-9a-f]+$", var.existing.vpc_id))
    error_message = "existing.vpc_id: set a VPC's id, such as vpc-0a1b2c3d."
  }
  validation {
    condition     = var.existing == null || try(length(var.existing.subnet_ids) >= 2, false)
    error_message = "existing.subnet_ids: set two or more private subnets, in different zones."
  }
  validation {
    condition     = var.existing == null || can(cidrhost(var.existing.cidr, 0))
    error_message = "existing.cidr: set the VPC's range, such as 10.20.0.0/16."
  }
}

variable "cidr" {
  description = "Range of the VPC that is made."
  type        = string
  default     = "10.20.0.0/16"

  validation {
    condition     = can(cidrhost(var.cidr, 0)) && can(regex("/(1[6-9]|2[0-2])$", var.cidr))
    error_message = "cidr: set a range of /16 to /22, such as 10.20.0.0/16: each worker takes an address."
  }
}

variable "zones" {
  description = "Availability zones of the private subnets, one for each."
  type        = list(string)

  validation {
    condition     = length(var.zones) >= 2 && length(var.zones) <= 4
    error_message = "zones: set two to four."
  }
}

variable "endpoints" {
  description = "Whether to make the VPC's endpoints to AWS; false where the VPC has them, or reaches AWS by a gateway of its own."
  type        = bool
  default     = true
}

variable "interface_services" {
  description = "Services to have an interface endpoint of their own. Each costs by the hour and zone."
  type        = list(string)
  nullable    = false
  default     = ["emr-serverless", "glue", "kms", "logs", "monitoring", "secretsmanager", "sqs", "sts"]

  validation {
    condition     = length(setsubtract(["glue", "kms", "logs", "sts"], var.interface_services)) == 0
    error_message = "interface_services: a job needs glue, kms, logs and sts at least."
  }
}

variable "airflow" {
  description = "Whether Airflow runs in the VPC: it needs a security group and endpoints of its own."
  type        = bool
  default     = true
}

variable "kafka" {
  description = "Whether an MSK cluster is made in the VPC: it needs a security group."
  type        = bool
  default     = false
}

variable "flow_logs" {
  description = "Whether to log the VPC's flows to CloudWatch."
  type        = bool
  default     = true
}

variable "kms_key_arn" {
  description = "ARN of the key that flow logs are encrypted with."
  type        = string
}

variable "log_days" {
  description = "Days for which flow logs are kept: a number that CloudWatch knows."
  type        = number
  default     = 365
}
